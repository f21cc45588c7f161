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

// ErrEntry marks an entry that could not be parsed; reading can go on.
var ErrEntry = errors.New("malformed journal entry")

// ParseJournal parses an entry of `journalctl -o json`.
func ParseJournal(object []byte) (Record, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return entry(func(k string) string { return jsonText(m[k]) })
}

// jsonText reads a value: a string, a number, null, an array of strings (the first
// counts) or an array of bytes, as journald writes what is not UTF-8.
func jsonText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
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

// ParseDmesgJSON parses an element of what `dmesg -J` prints, with -x or not.
func ParseDmesgJSON(element []byte) (Record, error) {
	var m struct {
		Fac, Pri, Time json.RawMessage
		Msg            *string
	}
	if err := json.Unmarshal(element, &m); err != nil {
		return Record{}, err
	}
	if m.Msg == nil {
		return Record{}, errors.New("record has no msg")
	}
	r := Record{Priority: -1, Undated: true}
	facility := facilityUnknown
	if pri := jsonText(m.Pri); digitsOf(pri) == pri && pri != "" {
		n, _ := strconv.Atoi(pri)
		facility, r.Priority = n>>3, n&7
	} else if level, ok := levels[pri]; ok {
		r.Priority = level
	}
	if fac, ok := facilities[jsonText(m.Fac)]; ok {
		facility = fac
	}
	var t Text
	if d, err := seconds(jsonText(m.Time)); err == nil {
		r.SinceBoot, r.Undated = d, false
	} else if at, _, ok := isoTime(jsonText(m.Time)); ok {
		r.Time, r.Undated = at, false
	} else {
		t.brackets(&r, jsonText(m.Time), false)
	}
	tag, pid, text := syslogTag(*m.Msg)
	if facility > 0 || pid != "" {
		r.Unit, r.Text = writer(tag, pid, facility), text
	} else {
		r.Text = *m.Msg
	}
	return r, nil
}

// Journal reads the entries of `journalctl -o export` and `-o verbose`.
type Journal struct {
	r       *bufio.Reader
	verbose bool
	line    int
	head    string // the next entry's first line (verbose)
}

// NewJournal returns a reader of what journalctl wrote with -o export or -o verbose.
func NewJournal(r *bufio.Reader, verbose bool) *Journal { return &Journal{r: r, verbose: verbose} }

// Line returns the number of the line on which the last entry ended.
func (j *Journal) Line() int { return j.line }

// Next returns the next entry, io.EOF at the end, or an error that wraps ErrEntry
// for an entry that was skipped.
func (j *Journal) Next() (Record, error) {
	if j.verbose {
		return j.nextVerbose()
	}
	return j.nextExport()
}

// VerboseHead reports whether a line is the first of an entry of -o verbose: its
// time and its cursor in brackets.
func VerboseHead(line string) bool {
	_, rest, ok := fullTime(strings.TrimSpace(line))
	return ok && strings.HasPrefix(rest, "[s=")
}

// nextVerbose reads a head and the lines "    KEY=value" that follow. The lines of
// a value of several are indented to where it begins.
func (j *Journal) nextVerbose() (Record, error) {
	for j.head == "" {
		line, err := j.readLine()
		if VerboseHead(string(line)) {
			j.head = strings.TrimSpace(string(line))
		} else if err != nil {
			return Record{}, err
		} else if s := strings.TrimSpace(string(line)); s != "" && !strings.HasPrefix(s, "-- ") {
			return Record{}, fmt.Errorf("%w: %.40q is outside of an entry", ErrEntry, s)
		}
	}
	at, cursor, _ := fullTime(j.head)
	m := map[string]string{"__CURSOR": strings.Trim(cursor, "[]"), "__REALTIME_TIMESTAMP": strconv.FormatInt(at.UnixMicro(), 10)}
	j.head = ""
	key, indent := "", ""
	for {
		line, err := j.readLine()
		s := stripEscapes(strings.TrimRight(string(line), "\r\n"))
		if VerboseHead(s) {
			j.head = strings.TrimSpace(s)
			break
		}
		if rest, ok := strings.CutPrefix(s, indent); ok && key != "" {
			m[key] += "\n" + rest
		} else if k, v, ok := strings.Cut(strings.TrimPrefix(s, "    "), "="); ok && fieldName([]byte(k)) {
			key, m[k] = k, v
			indent = strings.Repeat(" ", 4+len(k)+1)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return Record{}, err
			}
			break
		}
	}
	if Hidden(m["MESSAGE"]) {
		return Record{}, fmt.Errorf("%w: journalctl hid its text as %s: use -o export or --all", ErrEntry, m["MESSAGE"])
	}
	return entry(func(k string) string { return m[k] })
}

// Hidden reports whether journalctl has put a size in the place of a text that it
// did not want to print: "[80B blob data]".
func Hidden(text string) bool {
	return strings.HasPrefix(text, "[") && strings.HasSuffix(text, " blob data]")
}

// exported are the fields of the export format that are kept; an entry may have others of any size.
var exported = map[string]bool{
	"MESSAGE": true, "PRIORITY": true, "SYSLOG_FACILITY": true, "SYSLOG_IDENTIFIER": true, "SYSLOG_PID": true, "_PID": true, "_COMM": true,
	"_TRANSPORT": true, "_SYSTEMD_UNIT": true, "_HOSTNAME": true, "_BOOT_ID": true, "__CURSOR": true, "__REALTIME_TIMESTAMP": true,
	"__MONOTONIC_TIMESTAMP": true, "_SOURCE_REALTIME_TIMESTAMP": true, "_SOURCE_MONOTONIC_TIMESTAMP": true,
}

// nextExport reads fields until an empty line. A field is "KEY=value" or, for
// values with newlines, the key alone, then 8 bytes of length, the bytes and a
// newline (systemd, Journal Export Format).
func (j *Journal) nextExport() (Record, error) {
	m := make(map[string]string, len(exported))
	any := false // of the entry was read
	for {
		line, err := j.readLine()
		if err != nil && len(line) == 0 {
			if any && errors.Is(err, io.EOF) {
				break
			}
			return Record{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if any {
				break
			}
			if err != nil {
				return Record{}, err
			}
			continue
		}
		any = true
		if k, v, ok := bytes.Cut(line, []byte("=")); ok {
			if exported[string(k)] {
				if _, dup := m[string(k)]; !dup {
					m[string(k)] = string(v)
				}
			}
			continue
		}
		if !fieldName(line) {
			j.skip()
			return Record{}, fmt.Errorf("%w: field %.40q has no value", ErrEntry, line)
		}
		if err := j.value(m, string(line)); err != nil {
			return Record{}, err
		}
	}
	return entry(func(k string) string { return m[k] })
}

// value reads the rest of a field whose length stands before it, and keeps at most maxLine bytes.
func (j *Journal) value(m map[string]string, key string) error {
	var size [8]byte
	if _, err := io.ReadFull(j.r, size[:]); err != nil {
		return fmt.Errorf("%w: length of %s: %w", ErrEntry, key, eof(err))
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > 1<<30 {
		j.skip()
		return fmt.Errorf("%w: field %s has %d bytes", ErrEntry, key, n)
	}
	var buf bytes.Buffer
	if exported[key] {
		if _, err := io.CopyN(&buf, j.r, int64(min(n, maxLine))); err != nil {
			return fmt.Errorf("%w: value of %s: %w", ErrEntry, key, eof(err))
		}
		m[key] = buf.String()
		j.line += bytes.Count(buf.Bytes(), []byte{'\n'})
	}
	rest := int64(n) - int64(buf.Len()) + 1 //nolint:gosec // bounded above
	if _, err := io.CopyN((*newlines)(&j.line), j.r, rest); err != nil {
		return fmt.Errorf("%w: value of %s: %w", ErrEntry, key, eof(err))
	}
	return nil
}

// newlines counts those of what it is given.
type newlines int

// Write implements [io.Writer].
func (n *newlines) Write(b []byte) (int, error) {
	*n += newlines(bytes.Count(b, []byte{'\n'}))
	return len(b), nil
}

func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ExportLine reports whether a line is a field of the export format.
func ExportLine(line string) bool {
	k, _, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
	return fieldName([]byte(k))
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
	r := Record{Priority: -1, Text: get("MESSAGE"), Host: get("_HOSTNAME"), BootID: get("_BOOT_ID"), Cursor: get("__CURSOR"), Service: get("_SYSTEMD_UNIT")}
	stamp := get("_SOURCE_REALTIME_TIMESTAMP")
	if stamp == "" {
		stamp = get("__REALTIME_TIMESTAMP")
	}
	if usec, err := strconv.ParseInt(stamp, 10, 64); err == nil && usec > 0 && usec < 1<<53 {
		r.Time = time.UnixMicro(usec).UTC()
	} else if stamp != "" {
		return r, fmt.Errorf("%w: time %.30q", ErrEntry, stamp)
	}
	since := get("_SOURCE_MONOTONIC_TIMESTAMP")
	if since == "" {
		since = get("__MONOTONIC_TIMESTAMP")
	}
	usec, err := strconv.ParseInt(since, 10, 64)
	if err == nil && usec >= 0 && usec < 1<<53 {
		r.SinceBoot = time.Duration(usec) * time.Microsecond
	}
	r.Undated = r.Time.IsZero() && (since == "" || err != nil)
	if p, err := strconv.Atoi(get("PRIORITY")); err == nil {
		r.Priority = p & 7
	}
	r.Unit = journalWriter(get)
	if r.Time.IsZero() && r.Text == "" && r.Cursor == "" {
		return r, fmt.Errorf("%w: neither message nor time", ErrEntry)
	}
	return r, nil
}

// journalWriter tells the kernel by the field that journald alone sets. What
// programs write to /dev/kmsg has the same transport, but another facility.
func journalWriter(get func(string) string) string {
	facility := facilityUnknown
	if n, err := strconv.Atoi(get("SYSLOG_FACILITY")); err == nil {
		facility = n
	}
	tag, pid, transport := get("SYSLOG_IDENTIFIER"), get("_PID"), get("_TRANSPORT")
	if pid == "" {
		pid = get("SYSLOG_PID")
	}
	switch {
	case transport == "kernel" && (tag == "" || tag == kernelUnit) && facility <= 0:
		return kernelUnit
	case tag == "":
		tag = get("_SYSTEMD_UNIT")
	}
	if tag == "" {
		tag = transport
	}
	if transport != "" && (tag == "" || tag == kernelUnit) || get("_COMM") != "" && tag == kernelUnit {
		return "user"
	}
	return writer(tag, pid, facility)
}
