package kernlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Record is one entry of a log, whatever its format.
type Record struct {
	Text string
	// Unit is the program or systemd unit that wrote it; "" or "kernel" is the
	// kernel, and nothing that a program wrote is called so.
	Unit     string
	Service  string // the systemd unit, where journald has looked it up; whoever logs cannot choose it
	Host     string
	Priority int    // syslog level 0 to 7, -1 unknown
	Sequence uint64 // /dev/kmsg only
	Cursor   string // journal only
	BootID   string
	// SinceBoot is the record's age at the boot's clock where Time is not known.
	SinceBoot time.Duration
	Time      time.Time
	// Undated says that the record has neither of the two.
	Undated bool
}

// maxLine bounds a line in bytes; longer ones are malformed.
const maxLine = 1 << 20

// ErrContinuation marks a line that belongs to the record before it.
var ErrContinuation = errors.New("continuation line")

const kernelUnit = "kernel"

// facilityUnknown stands for a facility that a format does not carry.
const facilityUnknown = -1

// writer names who wrote a record. Only what the kernel itself says is the
// kernel's: it has facility 0 (RFC 5424, section 6.2.1), which it refuses to user
// space that writes to /dev/kmsg, and no process id. Systemd is process 1; the
// managers of users, which have the same name, are not the host's.
func writer(tag, pid string, facility int) string {
	tag = strings.TrimSuffix(tag, ".service")
	switch {
	case (tag == "" || tag == kernelUnit) && facility <= 0 && (pid == "" || pid == "0"):
		return kernelUnit
	case tag == "" || tag == kernelUnit:
		return "user"
	case (tag == "systemd" || tag == "init.scope") && pid == "1":
		return "systemd"
	case tag == "systemd" && pid != "":
		return "systemd --user"
	}
	return tag
}

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
	if facility := int(prio >> 3); facility != 0 { // a process wrote to /dev/kmsg
		tag, pid, text := syslogTag(r.Text)
		r.Unit, r.Text = writer(tag, pid, facility), text
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

// syslogTag splits "systemd[1]: text" into tag, process id and text. A word with
// a colon inside, such as a PCI address, is no tag.
func syslogTag(s string) (tag, pid, text string) {
	i := strings.Index(s, ": ")
	if i < 0 && strings.HasSuffix(s, ":") {
		i = len(s) - 1
	}
	if i <= 0 || strings.ContainsAny(s[:i], " \t:") {
		return "", "", s
	}
	tag, text = s[:i], strings.TrimPrefix(s[i+1:], " ")
	if j := strings.IndexByte(tag, '['); j > 0 && strings.HasSuffix(tag, "]") {
		tag, pid = tag[:j], tag[j+1:len(tag)-1]
	}
	return tag, pid, text
}

// Text reads the lines of logs that people save: dmesg in all its forms, files of
// syslog (RFC 3164 and RFC 5424) and journalctl's short forms. It remembers what
// later lines leave out. It is not safe for concurrent use.
type Text struct {
	// Now is what a date without a year is measured against: it is not in the future.
	Now time.Time

	before Record // of which a line may be the continuation
	any    bool
	raw    bool      // before was a line of dmesg -r, which indents no continuation
	clock  time.Time // of the line before, for those that count from it
}

// Parse parses one line. A continuation comes with the head of its record. For a
// line without a time the record is Undated; known says whether the line had
// anything before its text: a time, a facility, a host or a program.
func (t *Text) Parse(line string) (r Record, known bool) {
	s := strings.TrimRight(stripEscapes(line), "\r\n")
	if trimmed := strings.TrimLeft(s, " \t"); trimmed != s {
		if t.any {
			r = t.before
			r.Text = trimmed
			return r, true
		}
		s = trimmed
	}
	if kmsgLine(s) {
		if r, err := ParseKmsg(s); err == nil {
			t.before, t.any, t.raw = r, true, false
			return r, true
		}
	}
	r, known, raw := t.head(s)
	if !known && t.raw {
		r = t.before
		r.Text = s
		return r, true
	}
	if known {
		t.before, t.any, t.raw = r, true, raw
	}
	return r, known
}

// head takes off what stands before the text of a record.
func (t *Text) head(s string) (r Record, known, raw bool) {
	r = Record{Priority: -1, Undated: true}
	facility := facilityUnknown
	if pri, rest, ok := priority(s); ok {
		facility, r.Priority, s, known, raw = pri>>3, pri&7, rest, true, true
		if rest, ok := strings.CutPrefix(s, "1 "); ok {
			if t.rfc5424(&r, rest, facility) {
				return r, true, false
			}
		}
	} else if fac, level, rest, ok := decoded(s); ok {
		facility, r.Priority, s, known = fac, level, rest, true
	}
	at, rest, remote, dated := t.date(s)
	if dated {
		r.Time, r.Undated, s, known, raw = at, false, rest, true, false
	}
	s, bracketed := t.brackets(&r, s, known)
	known = known || bracketed
	tag, pid, tagged := "", "", false
	if remote || bracketed && !dated {
		var host string
		if host, tag, pid, s, tagged = syslogHead(s, !remote); tagged {
			r.Host, raw = host, false
		}
	}
	if !tagged {
		// A process that wrote through /dev/kmsg, or a syslog line whose head was cut off.
		if g, p, rest := syslogTag(s); g == kernelUnit || g != "" && (p != "" || facility > 0) {
			tag, pid, s, tagged = g, p, rest, true
			known = true
		} else if before, after, ok := strings.Cut(s, " kernel: "); ok && !known && !strings.Contains(before, ": ") {
			tag, s, tagged, known = kernelUnit, after, true, true // behind a head of a form that nobody knows
		}
	}
	if tagged || facility > 0 {
		r.Unit = writer(tag, pid, facility)
	}
	if tagged && r.Unit == kernelUnit {
		s, _ = t.brackets(&r, s, true) // the kernel's own time after syslog's
	}
	if !r.Time.IsZero() {
		t.clock = r.Time
	}
	r.Text = printable(s)
	return r, known, raw
}

var octal = strings.NewReplacer("#012", "\n", "#011", "\t", "#015", "", "#033", "")

// printable undoes what rsyslog makes of control characters.
func printable(s string) string {
	if strings.Contains(s, "#0") {
		return octal.Replace(s)
	}
	return s
}

// priority splits "<30>text".
func priority(s string) (pri int, rest string, ok bool) {
	if !strings.HasPrefix(s, "<") {
		return 0, s, false
	}
	end := strings.IndexByte(s, '>')
	if end < 2 || end > 4 || digitsOf(s[1:end]) != s[1:end] {
		return 0, s, false
	}
	pri, err := strconv.Atoi(s[1:end])
	return pri, s[end+1:], err == nil && pri < 256
}

var (
	levels     = map[string]int{"emerg": 0, "alert": 1, "crit": 2, "err": 3, "warn": 4, "notice": 5, "info": 6, "debug": 7}
	facilities = map[string]int{
		"kern": 0, "user": 1, "mail": 2, "daemon": 3, "auth": 4, "syslog": 5, "lpr": 6, "news": 7, "uucp": 8, "cron": 9,
		"authpriv": 10, "ftp": 11, "local0": 16, "local1": 17, "local2": 18, "local3": 19, "local4": 20, "local5": 21, "local6": 22, "local7": 23,
	}
)

// decoded splits "kern  :err   : text" (dmesg -x).
func decoded(s string) (facility, level int, rest string, ok bool) {
	f := strings.SplitN(s, ":", 3)
	if len(f) != 3 || len(f[0]) > 9 || len(f[1]) > 9 {
		return 0, 0, s, false
	}
	level, known := levels[strings.TrimSpace(f[1])]
	facility, named := facilities[strings.TrimSpace(f[0])]
	return facility, level, strings.TrimPrefix(f[2], " "), known && named
}

// rfc5424 parses what follows "<PRI>1 ": time, host, program, process, message id,
// structured data and text (RFC 5424, section 6).
func (t *Text) rfc5424(r *Record, s string, facility int) bool {
	var f [5]string
	for i := range f {
		word, rest, ok := strings.Cut(s, " ")
		if !ok || word == "" {
			return false
		}
		s = rest
		if word != "-" {
			f[i] = word
		}
	}
	if f[0] != "" {
		at, err := time.Parse(time.RFC3339Nano, f[0])
		if err != nil {
			return false
		}
		r.Time, r.Undated, t.clock = at.UTC(), false, at.UTC()
	}
	text, ok := structured(s)
	if !ok {
		return false
	}
	r.Host, r.Unit = f[1], writer(f[2], f[3], facility)
	if f[2] == "" && facility > 0 {
		r.Unit = "user"
	}
	r.Text = printable(strings.TrimPrefix(text, "\ufeff"))
	if r.Unit == kernelUnit {
		r.Text, _ = t.brackets(r, r.Text, true)
	}
	return true
}

// structured takes off "-" or elements such as [id a="b\]"].
func structured(s string) (rest string, ok bool) {
	if s == "-" || strings.HasPrefix(s, "- ") {
		return strings.TrimPrefix(s[1:], " "), true
	}
	if !strings.HasPrefix(s, "[") {
		return s, false
	}
	quoted, depth := false, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']':
			depth--
			if depth == 0 && (i+1 == len(s) || s[i+1] != '[') {
				return strings.TrimPrefix(s[i+1:], " "), true
			}
		}
	}
	return s, false
}

// date splits a leading date; remote says that a host and a tag may follow it, as
// they do not in dmesg's own form, which alone has a comma in its seconds.
func (t *Text) date(s string) (at time.Time, rest string, remote, ok bool) {
	if at, rest, ok = isoTime(s); ok {
		return at, rest, s[min(19, len(s)-1)] != ',', true
	}
	if at, rest, ok = t.syslogTime(s); ok {
		return at, rest, true, true
	}
	if at, rest, ok = fullTime(s); ok {
		return at, rest, true, true
	}
	at, rest, ok = unixTime(s)
	return at, rest, ok, ok
}

// brackets takes off "[12.345678]", "[Sat Nov 21 06:50:24 2026]", "[Nov21 06:50]",
// "[  +0.000123]" and, behind one of them, the caller: "[   T1234]".
func (t *Text) brackets(r *Record, s string, stamped bool) (rest string, found bool) {
	for strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			break
		}
		field := strings.TrimSpace(s[1:end])
		field, step, stepped := strings.Cut(field, "<") // -d puts the time since the line before
		field = strings.TrimSpace(field)
		switch d, err := seconds(field); {
		case err == nil:
			r.SinceBoot, r.Undated = d, false
		case field == "" && stepped:
			if _, err := seconds(strings.TrimRight(strings.TrimSpace(step), " >")); err != nil {
				return s, found
			}
		case strings.HasPrefix(field, "+"):
			d, err := seconds(field[1:])
			if err != nil {
				return s, found
			}
			if !t.clock.IsZero() {
				t.clock = t.clock.Add(d)
				r.Time, r.Undated = t.clock, false
			}
		case stamped && caller(field):
		case !strings.Contains(field, ":"):
			return s, found
		default:
			at, err := t.ctime(field)
			if err != nil {
				return s, found
			}
			r.Time, r.Undated = at, false
		}
		stamped, found = true, true
		s = strings.TrimPrefix(s[end+1:], " ")
	}
	return s, found
}

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

// ctime parses dmesg -T and the first of a minute's lines of dmesg -e.
func (t *Text) ctime(s string) (time.Time, error) {
	for _, layout := range []string{"Mon Jan _2 15:04:05 2006", "Mon Jan _2 15:04:05 MST 2006"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC(), nil
		}
	}
	return t.thisYear("Jan_2 15:04", s)
}

// thisYear completes a date without a year with the last one in which it is not in
// the future; a day more is left for zones and clocks.
func (t *Text) thisYear(layout, s string) (at time.Time, err error) {
	now := t.Now
	if now.IsZero() {
		now = time.Now()
	}
	for year := now.Year() + 1; year > now.Year()-8; year-- { // leap days come each eighth year at the rarest
		if at, err = time.Parse("2006 "+layout, fmt.Sprintf("%04d %s", year, s)); err == nil && at.Before(now.AddDate(0, 0, 1)) {
			return at, nil
		}
	}
	if err == nil {
		err = errors.New("date lies in the future")
	}
	return time.Time{}, err
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
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999Z07", "2006-01-02T15:04:05.999999999",
	} {
		if t, err := time.Parse(layout, word); err == nil {
			return t.UTC(), rest, true
		}
	}
	return time.Time{}, s, false
}

// syslogTime splits a leading "Nov 21 06:50:24", perhaps with a fraction.
func (t *Text) syslogTime(s string) (time.Time, string, bool) {
	if len(s) < 16 || s[3] != ' ' || s[6] != ' ' || s[9] != ':' || s[12] != ':' {
		return time.Time{}, s, false
	}
	end := strings.IndexByte(s[15:], ' ')
	if end < 0 {
		return time.Time{}, s, false
	}
	at, err := t.thisYear("Jan _2 15:04:05", strings.TrimRight(s[:15+end], ":"))
	return at, s[16+end:], err == nil
}

// fullTime splits a leading "Thu 2026-01-01 00:00:00.123456 UTC", journalctl's form.
// Zones that only their names tell are those of RFC 5322, section 4.3; of others
// the date is taken as it stands.
func fullTime(s string) (time.Time, string, bool) {
	f := strings.SplitN(s, " ", 5)
	if len(f) < 5 || len(f[0]) != 3 {
		return time.Time{}, s, false
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999999", f[1]+" "+f[2])
	if err != nil {
		return time.Time{}, s, false
	}
	hours := map[string]int{"EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8}[f[3]]
	at = at.Add(-time.Duration(hours) * time.Hour)
	for _, layout := range []string{"-0700", "-07"} {
		if z, err := time.Parse(layout, f[3]); err == nil {
			_, offset := z.Zone()
			at = at.Add(-time.Duration(offset) * time.Second)
			break
		}
	}
	return at.UTC(), f[4], true
}

// unixTime splits a leading "1767225600.000000".
func unixTime(s string) (time.Time, string, bool) {
	word, rest, ok := strings.Cut(s, " ")
	if !ok || len(word) != 17 || word[10] != '.' {
		return time.Time{}, s, false
	}
	d, err := seconds(word)
	return time.Unix(0, int64(d)).UTC(), rest, err == nil
}

// syslogHead splits "host kernel: text", "host systemd[1]: text" and, as BusyBox
// writes, "host kern.err kernel: text". Behind a time since boot only journalctl
// writes a host: there a tag must be the kernel's or have a process id.
func syslogHead(s string, strict bool) (host, tag, pid, text string, ok bool) {
	h, rest, cut := strings.Cut(s, " ")
	if !cut || h == "" || strings.ContainsAny(h, ":[]()") {
		return "", "", "", s, false
	}
	if word, after, ok := strings.Cut(rest, " "); ok {
		if fac, level, dotted := strings.Cut(word, "."); dotted {
			_, known := levels[level]
			if _, named := facilities[fac]; known && named {
				rest = after
			}
		}
	}
	tag, pid, text = syslogTag(rest)
	switch {
	case tag == "", tag == "NVRM", strings.HasPrefix(tag, "nvidia-nvswitch"), strings.ContainsAny(tag[:1], "(["):
		// The tag is missing; with a driver's own name behind it, the first word is a host.
		if tag == "NVRM" || strings.HasPrefix(tag, "nvidia-nvswitch") {
			return h, "", "", rest, !strict
		}
		return "", "", "", s, false
	case strict && tag != kernelUnit && (pid == "" || digitsOf(pid) != pid):
		return "", "", "", s, false
	}
	return h, tag, pid, text, true
}

// kmsgLine reports whether a line begins as one of /dev/kmsg: "3,1042,5034567,-;".
func kmsgLine(s string) bool {
	n := digitsOf(s)
	return n != "" && len(n) < len(s) && s[len(n)] == ',' && strings.Contains(s, ";") && strings.Count(s[:strings.IndexByte(s, ';')], ",") >= 3
}

// stripEscapes takes out the terminal's sequences (ECMA-48): colours and links.
func stripEscapes(s string) string {
	i := strings.IndexByte(s, '\x1b')
	if i < 0 {
		return s
	}
	var b strings.Builder
	for ; i >= 0; i = strings.IndexByte(s, '\x1b') {
		b.WriteString(s[:i])
		s = s[i+1:]
		switch {
		case strings.HasPrefix(s, "["): // up to a final byte
			j := 1
			for j < len(s) && (s[j] < 0x40 || s[j] > 0x7e) {
				j++
			}
			s = s[min(j+1, len(s)):]
		case strings.HasPrefix(s, "]"): // up to BEL or ESC \
			j := strings.IndexAny(s, "\a\x1b")
			if j < 0 {
				j = len(s) - 1
			}
			s = strings.TrimPrefix(s[j+1:], `\`)
		}
	}
	b.WriteString(s)
	return b.String()
}

// ContainerLine reports whether a line is of a container's log (Kubernetes CRI:
// "2026-03-04T05:00:12.5Z stdout F text"; F is a whole line, P a part of one).
func ContainerLine(s string) bool {
	stamp, rest, ok := strings.Cut(s, " ")
	if !ok || !strings.HasPrefix(rest, "stdout ") && !strings.HasPrefix(rest, "stderr ") {
		return false
	}
	rest = rest[len("stdout "):]
	if !strings.HasPrefix(rest, "F ") && !strings.HasPrefix(rest, "P ") && rest != "F" && rest != "P" {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, stamp)
	return err == nil
}
