package kernlog

import (
	"strings"
	"time"
)

// Syslog is a line of syslog with its head taken off. Its texts are parts of the line,
// so that a line that means nothing costs no memory.
type Syslog struct {
	Stamp string // the sender's time as it wrote it; "" where it wrote none
	Host  string // whose line it is; "" where it does not say
	// Unit is who wrote it, "kernel" the kernel. Of facilities other than the kernel's it is not
	// looked for: whoever may write to a host's log chooses what stands there.
	Unit string
	// SinceBoot is the kernel's own clock, which stands before most of its lines; 0 where it does not.
	SinceBoot time.Duration
	Text      string
}

// Kernel reports whether the kernel itself wrote the line.
func (l *Syslog) Kernel() bool { return l.Unit == kernelUnit }

// facilityUser is what a line without a priority is taken for (RFC 3164, section 4.3.3).
const facilityUser = 1

// ParseSyslog takes a line of RFC 5424 or RFC 3164 apart, also with the time stamp of RFC 3339
// that rsyslog puts into the latter, and without a time or host, as far as it says so. A line
// without a priority is a user's.
func ParseSyslog(line string) (l Syslog) {
	facility, s := facilityUser, line
	if pri, rest, ok := priority(s); ok {
		facility, s = pri>>3, rest
	}
	if rest, ok := strings.CutPrefix(s, "1 "); ok && l.rfc5424(rest, facility) {
		return l
	}
	l.Stamp, s = stamp(s)
	if l.Stamp != "" {
		// A tag alone ends in a colon, a host does not.
		if host, rest, ok := strings.Cut(s, " "); ok && host != "" && host[len(host)-1] != ':' && strings.IndexByte(host, '[') < 0 {
			l.Host, s = host, rest
		}
	}
	l.said(s, facility)
	return l
}

// said reads what follows the host: a tag and the text.
func (l *Syslog) said(s string, facility int) {
	l.Text = s
	if facility != 0 {
		return
	}
	text, tagged := strings.CutPrefix(s, "kernel: ")
	if !tagged {
		tag, pid, rest := syslogTag(s)
		if tag == strings.TrimSuffix(driver, ":") || strings.HasPrefix(tag, "nvidia-nvswitch") { // the tag is missing
			tag, rest = "", s
		}
		if l.Unit = writer(tag, pid, facility); !l.Kernel() {
			return
		}
		text = rest
	}
	l.Unit = kernelUnit
	l.clock(text)
}

// clock takes off "[12345.678901] " and, behind it, the caller: "[   T1234] ".
func (l *Syslog) clock(s string) {
	s = strings.TrimLeft(s, " ") // rsyslog leaves the space behind a tag before the message of RFC 5424
	for strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 || end > 32 {
			break
		}
		field := strings.TrimLeft(s[1:end], " ")
		if d, err := seconds(field); err == nil {
			l.SinceBoot = d
		} else if !caller(field) {
			break
		}
		s = strings.TrimPrefix(s[end+1:], " ")
	}
	l.Text = printable(s)
}

// rfc5424 parses what follows "<PRI>1 " (RFC 5424, section 6).
func (l *Syslog) rfc5424(s string, facility int) bool {
	var f [5]string
	for i := range f {
		end := strings.IndexByte(s, ' ')
		if end <= 0 {
			return false
		}
		if f[i], s = s[:end], s[end+1:]; f[i] == "-" {
			f[i] = ""
		}
	}
	if f[0] != "" && (len(f[0]) < 20 || f[0][4] != '-' || f[0][10] != 'T') {
		return false
	}
	text, ok := structured(s)
	if !ok {
		return false
	}
	l.Stamp, l.Host, l.Text = f[0], f[1], text
	if facility != 0 {
		return true
	}
	if l.Unit = writer(f[2], f[3], facility); l.Kernel() {
		l.clock(strings.TrimPrefix(text, "\ufeff"))
	}
	return true
}

// stamp splits a leading "Nov 21 06:50:24", perhaps with a fraction, or a time of RFC 3339.
func stamp(s string) (at, rest string) {
	if len(s) < 17 {
		return "", s
	}
	from := 0
	switch {
	case s[3] == ' ' && s[6] == ' ' && s[9] == ':' && s[12] == ':':
		from = 15
	case s[4] == '-' && s[7] == '-' && s[10] == 'T':
		from = 11
	default:
		return "", s
	}
	end := strings.IndexByte(s[from:], ' ')
	if end < 0 || end > 32 {
		return "", s
	}
	return s[:from+end], s[from+end+1:]
}

// Zones are at most zoneMost from UTC, a whole number of hours where they are nearer than zonePart,
// and of quarters otherwise (the time zone database of IANA).
const (
	zoneMost  = 14 * time.Hour
	zonePart  = 150 * time.Minute
	zoneDrift = time.Minute
)

// zone returns the zone that a clock is in which is off by so much; 0 for none.
func zone(off time.Duration) time.Duration {
	z := off.Round(15 * time.Minute)
	if z.Abs() < zonePart {
		z = off.Round(time.Hour)
	}
	if z.Abs() > zoneMost || (off-z).Abs() > zoneDrift {
		return 0
	}
	return z
}

// Time returns when the sender says that it wrote the line. Where it writes no zone, or no year,
// they are found by our clock: a time that is off by a zone, within a minute, is in that zone; one
// that is in the future otherwise is now. ok is false where the line has no time.
func (l *Syslog) Time(now time.Time) (at time.Time, ok bool) {
	if l.Stamp == "" {
		return now, false
	}
	if at, err := time.Parse(time.RFC3339Nano, l.Stamp); err == nil {
		return at.UTC(), true
	}
	t := Text{Now: now}
	at, _, _, ok = t.date(l.Stamp + " ")
	if !ok {
		return now, false
	}
	at = at.Add(-zone(at.Sub(now)))
	if at.After(now) {
		at = now
	}
	return at.UTC(), true
}
