package kernlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Record is one entry of a log, whatever its format.
type Record struct {
	Text     string
	Unit     string // syslog identifier; "" or "kernel" is the kernel
	Host     string
	Priority int    // syslog level 0 to 7, -1 unknown
	Sequence uint64 // /dev/kmsg only
	Cursor   string // journal only
	BootID   string
	// SinceBoot is the record's age at the boot's clock where Time is not known.
	SinceBoot time.Duration
	Time      time.Time
}

// maxLine bounds a line in bytes; longer ones are malformed.
const maxLine = 1 << 20

// ErrContinuation marks a line that belongs to the record before it.
var ErrContinuation = errors.New("continuation line")

// ParseKmsg parses a line of /dev/kmsg: "priority,sequence,microseconds,flags;text"
// (Linux, Documentation/ABI/testing/dev-kmsg). Lines that begin with a space are
// the dictionary of the record before: ErrContinuation.
func ParseKmsg(line string) (Record, error) {
	r := Record{}
	if strings.HasPrefix(line, " ") {
		return r, ErrContinuation
	}
	head, text, ok := strings.Cut(line, ";")
	if !ok {
		return r, errors.New("kmsg record has no semicolon")
	}
	f := strings.SplitN(head, ",", 5)
	if len(f) < 3 {
		return r, errors.New("kmsg record has fewer than 3 fields")
	}
	prio, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return r, fmt.Errorf("kmsg priority %.20q", f[0])
	}
	if r.Sequence, err = strconv.ParseUint(f[1], 10, 64); err != nil {
		return r, fmt.Errorf("kmsg sequence %.20q", f[1])
	}
	usec, err := strconv.ParseUint(f[2], 10, 63)
	if err != nil || usec > uint64(1<<62)/1000 {
		return r, fmt.Errorf("kmsg time %.20q", f[2])
	}
	r.SinceBoot = time.Duration(usec) * time.Microsecond
	r.Priority = int(prio & 7)
	r.Text = unescape(text)
	if prio>>3 != 0 { // not the kernel: a process wrote to /dev/kmsg
		r.Unit, r.Text = syslogTag(r.Text)
	}
	return r, nil
}

// unescape replaces \xNN, as the kernel writes what cannot be printed.
func unescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' {
			if v, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// syslogTag splits "systemd[1]: text" into its tag and the text.
func syslogTag(s string) (tag, text string) {
	i := strings.Index(s, ": ")
	if i <= 0 || strings.ContainsAny(s[:i], " \t") {
		return "", s
	}
	tag = s[:i]
	if j := strings.IndexByte(tag, '['); j > 0 {
		tag = tag[:j]
	}
	return tag, s[i+2:]
}

var levels = map[string]int{"emerg": 0, "alert": 1, "crit": 2, "err": 3, "warn": 4, "notice": 5, "info": 6, "debug": 7}

// ParseDmesg parses a line of dmesg in any of its forms: "[12.345678] text",
// "[Sat Nov 21 06:50:24 2026] text" (-T), "2026-11-21T06:50:24,123456+00:00 text"
// (--time-format iso), each with "kern  :err   : " before it (-x) or "<3>" (-r),
// and lines of a syslog file: "Nov 21 06:50:24 host kernel: [12.3] text". Year
// supplies what syslog leaves out.
func ParseDmesg(line string, year int) (Record, error) {
	r := Record{Priority: -1}
	s := strings.TrimRight(line, "\r\n")
	if strings.HasPrefix(s, "<") {
		if end := strings.IndexByte(s, '>'); end > 1 && end < 6 {
			if v, err := strconv.ParseUint(s[1:end], 10, 16); err == nil {
				r.Priority, s = int(v&7), s[end+1:]
			}
		}
	}
	if f := strings.SplitN(s, ":", 3); len(f) == 3 { // -x: "kern  :err   : "
		if lv, ok := levels[strings.TrimSpace(f[1])]; ok && !strings.ContainsAny(strings.TrimSpace(f[0]), "[] ") {
			r.Priority = lv
			if fac := strings.TrimSpace(f[0]); fac != "kern" {
				r.Unit = fac
			}
			s = strings.TrimPrefix(f[2], " ")
		}
	}
	if t, rest, ok := isoTime(s); ok {
		r.Time, s = t, rest
		r.Host, r.Unit, s = syslogHead(s, r.Unit)
	} else if t, rest, ok := syslogTime(s, year); ok {
		r.Time, s = t, rest
		r.Host, r.Unit, s = syslogHead(s, r.Unit)
	}
	s = strings.TrimPrefix(s, "kernel: ") // of a syslog line whose head was cut off
	stamped := !r.Time.IsZero()
	for strings.HasPrefix(s, "[") { // time, then perhaps the caller: "[   T1234]"
		end := strings.IndexByte(s, ']')
		if end < 0 {
			break
		}
		field, _, _ := strings.Cut(strings.TrimSpace(s[1:end]), " <") // -d puts the time since the line before
		if d, err := seconds(field); err == nil {
			r.SinceBoot = d
		} else if t, err := ctime(field); err == nil {
			r.Time = t
		} else if !caller(field) || !stamped {
			break
		}
		stamped = true
		s = strings.TrimPrefix(s[end+1:], " ")
	}
	if r.Unit != "" && r.Unit != "kernel" {
		r.Text = s
		return r, nil
	}
	if !stamped {
		if strings.TrimSpace(s) == "" {
			return r, ErrContinuation
		}
		if strings.HasPrefix(s, " ") || strings.HasPrefix(s, "\t") {
			return r, ErrContinuation
		}
		r.Text = s
		return r, errNoTime
	}
	if tag, text := syslogTag(s); strings.HasPrefix(s, tag+"[") && tag != "" {
		r.Unit, s = tag, text // a process that wrote through /dev/kmsg
	}
	r.Text = s
	return r, nil
}

// errNoTime is returned with a usable record for a line without a time.
var errNoTime = errors.New("line has no time")

// NoTime reports whether an error of ParseDmesg says only that a line has no
// time; the record's text is valid then.
func NoTime(err error) bool { return errors.Is(err, errNoTime) }

func caller(s string) bool {
	return len(s) > 1 && (s[0] == 'T' || s[0] == 'C') && digitsOf(s[1:]) == s[1:]
}

// seconds parses "12345.678901" without a float's rounding.
func seconds(s string) (time.Duration, error) {
	whole, frac, ok := strings.Cut(s, ".")
	if !ok || whole == "" || frac == "" || len(frac) > 9 || digitsOf(whole) != whole || digitsOf(frac) != frac {
		return 0, errors.New("not seconds")
	}
	w, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || w > 1<<33 {
		return 0, errors.New("not seconds")
	}
	n, _ := strconv.ParseInt(frac+strings.Repeat("0", 9-len(frac)), 10, 64)
	return time.Duration(w)*time.Second + time.Duration(n), nil
}

func ctime(s string) (time.Time, error) {
	t, err := time.Parse("Mon Jan _2 15:04:05 2006", s)
	if err != nil {
		t, err = time.Parse("Mon Jan _2 15:04:05 MST 2006", s)
	}
	return t.UTC(), err
}

// isoTime splits a leading ISO 8601 time, with a comma or a point before the
// fraction and with or without a zone.
func isoTime(s string) (time.Time, string, bool) {
	if len(s) < 19 || s[4] != '-' || s[7] != '-' || s[10] != 'T' && s[10] != ' ' {
		return time.Time{}, s, false
	}
	word, rest := s, ""
	if i := strings.IndexByte(s[11:], ' '); i >= 0 {
		word, rest = s[:11+i], s[12+i:]
	}
	word = strings.Replace(strings.Replace(word, ",", ".", 1), " ", "T", 1)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, word); err == nil {
			return t.UTC(), rest, true
		}
	}
	return time.Time{}, s, false
}

// syslogTime splits a leading "Nov 21 06:50:24".
func syslogTime(s string, year int) (time.Time, string, bool) {
	if len(s) < 16 || s[3] != ' ' || s[15] != ' ' {
		return time.Time{}, s, false
	}
	t, err := time.Parse("2006 Jan _2 15:04:05", fmt.Sprintf("%04d %s", year, s[:15]))
	if err != nil {
		return time.Time{}, s, false
	}
	return t.UTC(), s[16:], true
}

// syslogHead splits "host kernel: text" and "host systemd[1]: text".
func syslogHead(s, unit string) (host, tag, text string) {
	h, rest, ok := strings.Cut(s, " ")
	if !ok || strings.ContainsAny(h, ":[]") || h == "" {
		if t, text := syslogTag(s); t == "kernel" {
			return "", t, text
		}
		return "", unit, s
	}
	t, text := syslogTag(rest)
	if t == "" {
		return "", unit, s
	}
	if t == "NVRM" || strings.HasPrefix(t, "nvidia-nvswitch") {
		return "", unit, s
	}
	return h, t, text
}

// Journal reads the entries of `journalctl -o export` or `-o json`, or an array
// of the latter; which it tells from the first byte.
type Journal struct {
	r    *bufio.Reader
	json bool
	list *json.Decoder // of an array
	done bool
	init bool
	line int
}

// NewJournal returns a reader of a journal.
func NewJournal(r io.Reader) *Journal { return &Journal{r: bufio.NewReaderSize(r, 64<<10)} }

// Line returns the number of the line on which the last entry ended; of an
// array, the number of the element.
func (j *Journal) Line() int { return j.line }

// ErrEntry marks an entry that could not be parsed; reading can go on.
var ErrEntry = errors.New("malformed journal entry")

// Next returns the next entry, io.EOF at the end, or an error that wraps ErrEntry
// for an entry that was skipped.
func (j *Journal) Next() (Record, error) {
	if !j.init {
		for {
			b, err := j.r.Peek(1)
			if err != nil {
				return Record{}, err
			}
			if b[0] != '\n' && b[0] != '\r' && b[0] != ' ' {
				j.json = b[0] == '{' || b[0] == '\x1e'
				if b[0] == '[' {
					j.list = json.NewDecoder(j.r)
					_, _ = j.list.Token()
				}
				break
			}
			if b[0] == '\n' {
				j.line++
			}
			_, _ = j.r.Discard(1)
		}
		j.init = true
	}
	if j.list != nil {
		return j.nextElement()
	}
	if j.json {
		return j.nextJSON()
	}
	return j.nextExport()
}

func (j *Journal) nextJSON() (Record, error) {
	for {
		line, err := j.readLine()
		if err != nil && len(line) == 0 {
			return Record{}, err
		}
		line = bytes.TrimLeft(bytes.TrimSpace(line), "\x1e")
		if len(line) == 0 {
			if err != nil {
				return Record{}, err
			}
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrEntry, err)
		}
		return entry(func(k string) string { return jsonText(m[k]) })
	}
}

func (j *Journal) nextElement() (Record, error) {
	if j.done {
		return Record{}, io.EOF
	}
	if !j.list.More() {
		j.done = true
		if _, err := j.list.Token(); err != nil {
			return Record{}, fmt.Errorf("%w: array does not end: %w", ErrEntry, eof(err))
		}
		return Record{}, io.EOF
	}
	j.line++
	var m map[string]json.RawMessage
	if err := j.list.Decode(&m); err != nil {
		var kind *json.UnmarshalTypeError
		j.done = !errors.As(err, &kind) // else there is no next element to be found
		return Record{}, fmt.Errorf("%w: element %d: %w", ErrEntry, j.line, eof(err))
	}
	return entry(func(k string) string { return jsonText(m[k]) })
}

// jsonText reads a value: a string, null, an array of strings (the first counts)
// or an array of bytes, as journald writes what is not UTF-8.
func jsonText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var ints []int
	if json.Unmarshal(raw, &ints) == nil {
		b := make([]byte, 0, len(ints))
		for _, v := range ints {
			b = append(b, byte(v))
		}
		return string(b)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return jsonText(list[0])
	}
	return ""
}

// nextExport reads fields until an empty line. A field is "KEY=value" or, for
// values with newlines, the key alone, then 8 bytes of length, the bytes and a
// newline (systemd, Journal Export Format).
func (j *Journal) nextExport() (Record, error) {
	m := make(map[string]string, 32)
	for {
		line, err := j.readLine()
		if err != nil && len(line) == 0 {
			if len(m) > 0 && errors.Is(err, io.EOF) {
				break
			}
			return Record{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(m) == 0 {
				if err != nil {
					return Record{}, err
				}
				continue
			}
			break
		}
		if k, v, ok := bytes.Cut(line, []byte("=")); ok {
			if _, dup := m[string(k)]; !dup {
				m[string(k)] = string(v)
			}
			continue
		}
		if !fieldName(line) {
			j.skip()
			return Record{}, fmt.Errorf("%w: field %.40q has no value", ErrEntry, line)
		}
		var size [8]byte
		if _, err := io.ReadFull(j.r, size[:]); err != nil {
			return Record{}, fmt.Errorf("%w: length of %s: %w", ErrEntry, line, eof(err))
		}
		n := binary.LittleEndian.Uint64(size[:])
		if n > 64<<20 {
			j.skip()
			return Record{}, fmt.Errorf("%w: field %s has %d bytes", ErrEntry, line, n)
		}
		var buf bytes.Buffer
		if _, err := io.CopyN(&buf, j.r, int64(n)+1); err != nil {
			return Record{}, fmt.Errorf("%w: value of %s: %w", ErrEntry, line, eof(err))
		}
		b := buf.Bytes()
		j.line += bytes.Count(b, []byte{'\n'})
		m[string(line)] = string(b[:n])
	}
	return entry(func(k string) string { return m[k] })
}

func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func fieldName(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 64
}

// skip goes to the next empty line.
func (j *Journal) skip() {
	for {
		line, err := j.readLine()
		if err != nil || len(bytes.TrimSpace(line)) == 0 {
			return
		}
	}
}

// readLine returns a line of at most maxLine bytes; the rest of a longer one is
// thrown away.
func (j *Journal) readLine() ([]byte, error) {
	var out []byte
	for {
		part, err := j.r.ReadSlice('\n')
		if len(out) < maxLine {
			out = append(out, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(part) > 0 && part[len(part)-1] == '\n' {
			j.line++
		}
		return out, err
	}
}

func entry(get func(string) string) (Record, error) {
	r := Record{Priority: -1, Text: get("MESSAGE"), Host: get("_HOSTNAME"), BootID: get("_BOOT_ID"), Cursor: get("__CURSOR")}
	stamp := get("_SOURCE_REALTIME_TIMESTAMP")
	if stamp == "" {
		stamp = get("__REALTIME_TIMESTAMP")
	}
	if usec, err := strconv.ParseInt(stamp, 10, 64); err == nil && usec > 0 && usec < 1<<53 {
		r.Time = time.UnixMicro(usec).UTC()
	} else if stamp != "" {
		return r, fmt.Errorf("%w: time %.30q", ErrEntry, stamp)
	}
	if usec, err := strconv.ParseInt(get("_SOURCE_MONOTONIC_TIMESTAMP"), 10, 64); err == nil && usec >= 0 && usec < 1<<53 {
		r.SinceBoot = time.Duration(usec) * time.Microsecond
	}
	if p, err := strconv.Atoi(get("PRIORITY")); err == nil {
		r.Priority = p & 7
	}
	if get("_TRANSPORT") != "kernel" {
		r.Unit = get("SYSLOG_IDENTIFIER")
		if r.Unit == "" {
			r.Unit = strings.TrimSuffix(get("_SYSTEMD_UNIT"), ".service")
		}
		if r.Unit == "" && get("_TRANSPORT") != "" {
			r.Unit = get("_TRANSPORT")
		}
	}
	if r.Time.IsZero() && r.Text == "" && r.Cursor == "" {
		return r, fmt.Errorf("%w: neither message nor time", ErrEntry)
	}
	return r, nil
}
