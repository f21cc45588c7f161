// Package decode turns raw vendor text into lines of events.jsonl, as a stream:
// kernel logs, journals, fabric manager's log, IPMI event logs and Redfish events
// (formats, section 4).
package decode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"auspex/internal/decode/kernlog"
	"auspex/internal/decode/redfishevent"
	"auspex/internal/decode/sel"
	"auspex/internal/textfile"
	"auspex/schemas"
)

// Formats lists what can be decoded.
func Formats() []string {
	return []string{"kmsg", "dmesg", "journal", "fabricmanager", "imex", "sel", "sel-raw", "redfish-event"}
}

// ErrBadLine is wrapped when a strict run stops at a line.
var ErrBadLine = errors.New("bad line")

// ErrNothingRead is wrapped when no record of the input could be read.
var ErrNothingRead = errors.New("no record could be read")

// ErrUnknownFormat is wrapped when a format is not one of Formats.
var ErrUnknownFormat = errors.New("unknown format")

// Options says how to read.
type Options struct {
	Format string
	// Name is the input's name in messages.
	Name string
	// Host is the server that the text comes from; empty takes what the text says.
	Host string
	// Boot is when the host booted; it places times that count from there.
	Boot time.Time
	// Strict stops at the first bad line.
	Strict bool
	// MaxSize is how many bytes the text may hold, unpacked; 0 is
	// [textfile.MaxUnpacked] for a packed one.
	MaxSize int64
	// Resolve names the resource that an event speaks of; nil leaves the host.
	Resolve func(ev *schemas.Event) string
	// Now supplies the year that syslog leaves out; nil is the clock.
	Now func() time.Time
}

// Result counts what was read and written.
type Result struct{ Records, Events, Bad int }

const (
	maxLine     = 1 << 20
	maxBody     = 64 << 20
	unknownHost = "localhost"
)

// Run reads text and writes an event a line. A bad line is named on errw with
// input, line and reason, counted and skipped; with Strict it is the error, which
// wraps ErrBadLine. The input may be compressed with gzip or zstd.
func Run(ctx context.Context, in io.Reader, out, errw io.Writer, o Options) (Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	unpacked, err := textfile.NewReader(in, o.MaxSize)
	if err != nil {
		return Result{}, fmt.Errorf("read %s: %w", o.Name, err)
	}
	defer func() { _ = unpacked.Close() }()
	d := &decoder{
		o: o, ctx: ctx, in: unpacked.Reader, out: bufio.NewWriterSize(out, 64<<10), errw: errw, repeats: map[string]int{},
		text: kernlog.Text{Now: o.Now()},
	}
	d.enc = json.NewEncoder(d.out)
	d.enc.SetEscapeHTML(false)
	switch o.Format {
	case "kmsg":
		err = d.lines(d.kmsg)
	case "dmesg", "journal":
		err = d.kernel()
	case "fabricmanager":
		err = d.lines(func(s string) error { return d.service(d.parser.FabricManager, s) })
	case "imex":
		err = d.lines(func(s string) error { return d.service(d.parser.IMEX, s) })
	case "sel":
		err = d.lines(func(s string) error { return d.sel(sel.ParseElist, s) })
	case "sel-raw":
		err = d.lines(func(s string) error { return d.sel(sel.ParseHex, s) })
	case "redfish-event":
		err = d.bodies(d.body)
	default:
		return Result{}, fmt.Errorf("%w: %q; known are %s", ErrUnknownFormat, o.Format, strings.Join(Formats(), ", "))
	}
	if ferr := d.out.Flush(); err == nil && ferr != nil {
		err = fmt.Errorf("write events: %w", ferr)
	}
	if d.res.Bad > 0 && err == nil {
		if d.res.Bad == d.res.Records && d.res.Events == 0 {
			return d.res, fmt.Errorf("%w: %s: none of %d records is %s", ErrNothingRead, o.Name, d.res.Records, o.Format)
		}
		fmt.Fprintf(errw, "%s: %d of %d records could not be read\n", o.Name, d.res.Bad, d.res.Records)
	}
	return d.res, err
}

type decoder struct {
	o       Options
	ctx     context.Context
	in      *bufio.Reader
	out     *bufio.Writer
	enc     *json.Encoder
	errw    io.Writer
	res     Result
	line    int
	parser  kernlog.Parser
	text    kernlog.Text
	boot    int    // boots seen
	seq     uint64 // of the record before
	last    time.Time
	stamp   string
	repeats map[string]int // equal records of one moment
}

// bad reports a line, and stops a strict run.
func (d *decoder) bad(err error) error {
	d.res.Bad++
	if d.o.Strict {
		return fmt.Errorf("%w: %s:%d: %w", ErrBadLine, d.o.Name, d.line, err)
	}
	_, _ = fmt.Fprintf(d.errw, "%s:%d: %v\n", d.o.Name, d.line, err)
	return nil
}

// lines calls f for each line. An error of f is a bad line.
func (d *decoder) lines(f func(string) error) error {
	for {
		line, long, err := d.readLine(maxLine)
		if len(line) > 0 || long || err == nil {
			d.line++
			if d.line&0x3ff == 0 && d.ctx.Err() != nil {
				return d.ctx.Err()
			}
			var ferr error
			switch s := text(line); {
			case long:
				d.res.Records++
				ferr = fmt.Errorf("line is longer than %d bytes", maxLine)
			case strings.TrimSpace(s) == "":
			case strings.IndexByte(s, 0) >= 0:
				d.res.Records++
				ferr = errors.New("line holds NUL bytes: it is not text, or it is UTF-16 without a byte order mark")
			default:
				d.res.Records++
				ferr = f(strings.ToValidUTF8(s, "\uFFFD"))
			}
			var w *writeError
			if errors.As(ferr, &w) {
				return ferr
			}
			if ferr != nil {
				if berr := d.bad(ferr); berr != nil {
					return berr
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.o.Name, err)
		}
	}
}

// text takes the end off a line, and the NULs that a file system puts where a crash
// lost what a log had written.
func text(line string) string { return strings.Trim(strings.TrimRight(line, "\r\n"), "\x00") }

// errContainer is a line of a container's log.
var errContainer = errors.New("a container runtime wrote it: a program's output, not the kernel's log; decode that of the host")

// readLine returns a line with its end; of one that is longer than limit bytes
// the rest is thrown away.
func (d *decoder) readLine(limit int) (line string, long bool, err error) {
	var buf []byte
	for {
		part, err := d.in.ReadSlice('\n')
		if len(buf) <= limit {
			buf = append(buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return string(buf), len(buf) > limit+1, err
	}
}

// writeError is no fault of the line.
type writeError struct{ err error }

// Error implements error.
func (e *writeError) Error() string { return "write events: " + e.err.Error() }

// Unwrap returns the cause.
func (e *writeError) Unwrap() error { return e.err }

// write completes an event and writes it. The id is made of what the record is;
// where the log gives its records no names, also of how many equal ones the same
// moment has had. A record with a name that is read twice is the same event.
func (d *decoder) write(ev *schemas.Event, host, epoch, record string) error {
	if d.o.Host != "" || host == "" {
		host = d.o.Host
	}
	if host == "" {
		host = unknownHost
	}
	ev.Resource = host
	if ev.Time.IsZero() {
		if ev.Time = d.last; d.last.IsZero() {
			ev.Time = time.Unix(0, 0)
		}
		ev.SetAttr("clock", "unknown")
	}
	ev.Time = ev.Time.UTC()
	d.last = ev.Time
	if ev.Observed.IsZero() {
		ev.Observed = ev.Time
	}
	stamp := ev.Time.Format(time.RFC3339Nano)
	if stamp != d.stamp {
		clear(d.repeats)
		d.stamp = stamp
	}
	id := schemas.EventID(host, epoch, record, stamp, ev.Type, ev.Message)
	n := d.repeats[id]
	if d.repeats[id] = n + 1; n > 0 && record == "" {
		id = schemas.EventID(host, epoch, record, stamp, ev.Type, ev.Message, strconv.Itoa(n))
	}
	ev.ID = id
	if d.o.Resolve != nil {
		if r := d.o.Resolve(ev); r != "" {
			ev.Resource = r
		}
	}
	d.res.Events++
	if err := d.enc.Encode(ev); err != nil {
		return &writeError{err}
	}
	return nil
}

// place gives a time since boot its date.
func (d *decoder) place(ev *schemas.Event, since time.Duration) {
	if !d.o.Boot.IsZero() {
		ev.Time = d.o.Boot.Add(since)
		return
	}
	ev.Time = time.Unix(0, 0).Add(since)
	ev.SetAttr("clock", "boot")
}

// record writes the events that a record means.
func (d *decoder) record(r *kernlog.Record, epoch, name string) error {
	for _, ev := range d.parser.Message(r.Unit, r.Text) {
		switch {
		case !r.Time.IsZero():
			ev.Time = r.Time
		case !r.Undated:
			d.place(&ev, r.SinceBoot)
		}
		if r.BootID != "" {
			ev.SetAttr("boot_id", r.BootID)
		}
		if err := d.write(&ev, r.Host, epoch, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) kmsg(s string) error {
	r, err := kernlog.ParseKmsg(s)
	if errors.Is(err, kernlog.ErrContinuation) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.sequenced(&r)
}

// sequenced writes a record of /dev/kmsg, whose number names it within its boot.
func (d *decoder) sequenced(r *kernlog.Record) error {
	if r.Sequence < d.seq {
		d.boot++
	}
	d.seq = r.Sequence
	return d.record(r, "kmsg "+strconv.Itoa(d.boot), strconv.FormatUint(r.Sequence, 10))
}

// kernel reads what dmesg and journalctl print, in whichever of their forms.
func (d *decoder) kernel() error {
	head, err := d.peekLine()
	if err != nil {
		return err
	}
	switch line := strings.TrimLeft(head, "\x1e \t"); {
	case strings.HasPrefix(line, "{"), strings.HasPrefix(line, "data: {"), line == "[", strings.HasPrefix(line, "[{"),
		strings.HasPrefix(line, "[ {"), line == "[]":
		return d.bodies(d.object)
	case kernlog.ExportLine(line):
		return d.journal(false)
	case kernlog.VerboseHead(line):
		return d.journal(true)
	case octets(line) > 0:
		return d.frames()
	case d.o.Format == "journal":
		if _, known := (&kernlog.Text{Now: d.text.Now}).Parse(head); !known && head != "" && !strings.HasPrefix(head, "-- ") {
			return fmt.Errorf("%w: %s: %.40q has neither time nor source; journalctl -o cat omits them: use -o export or -o json",
				ErrNothingRead, d.o.Name, head)
		}
	}
	return d.lines(d.textLine)
}

// octets returns the length of the syslog message that follows, where a stream
// counts (RFC 6587, section 3.4.1: "64 <3>1 …"), else 0.
func octets(s string) int {
	n, rest, ok := strings.Cut(s, " <")
	length, err := strconv.Atoi(n)
	if !ok || err != nil || length <= 0 || length > maxLine || n[0] == '+' || rest == "" || rest[0] < '0' || rest[0] > '9' {
		return 0
	}
	return length
}

// frames reads messages whose lengths are told; they may have several lines.
func (d *decoder) frames() error {
	for d.ctx.Err() == nil {
		if lead, err := d.lead(); err != nil || lead == 0 {
			return err
		}
		head, err := d.in.Peek(12)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", d.o.Name, err)
		}
		d.line++
		d.res.Records++
		n := octets(string(head))
		if n == 0 {
			line, _, _ := d.readLine(maxLine)
			if err := d.bad(fmt.Errorf("%.40q does not begin with its length", line)); err != nil {
				return err
			}
			continue
		}
		_, _ = d.in.Discard(bytes.IndexByte(head, ' ') + 1)
		text := make([]byte, n)
		if _, err = io.ReadFull(d.in, text); err == nil {
			err = d.textLine(strings.ToValidUTF8(strings.TrimRight(string(text), "\r\n"), "\uFFFD"))
		}
		if err := d.report(err); err != nil {
			return err
		}
	}
	return d.ctx.Err()
}

// peekLine returns what of the first line that is not empty the buffer holds.
func (d *decoder) peekLine() (string, error) {
	if _, err := d.lead(); err != nil {
		return "", err
	}
	for n := 256; ; n *= 4 {
		b, err := d.in.Peek(min(n, d.in.Size()))
		line, _, whole := bytes.Cut(b, []byte{'\n'})
		if whole || err != nil || n >= d.in.Size() {
			if err != nil && !errors.Is(err, io.EOF) {
				return "", fmt.Errorf("read %s: %w", d.o.Name, err)
			}
			return strings.TrimRight(string(line), "\r"), nil
		}
	}
}

// textLine reads a line of dmesg, of a syslog file or of journalctl's short forms.
func (d *decoder) textLine(s string) error {
	if strings.HasPrefix(s, "-- ") && strings.HasSuffix(s, "--") { // journalctl's own words
		return nil
	}
	if kernlog.ContainerLine(s) {
		return errContainer
	}
	r, known := d.text.Parse(s)
	switch {
	case !known && d.o.Format == "journal":
		return errors.New("line has neither time nor source")
	case (r.Unit == "" || r.Unit == "kernel") && kernlog.Hidden(r.Text):
		return fmt.Errorf("journalctl hid the kernel's text as %s: use -o export or --all", r.Text)
	case r.Sequence > 0:
		return d.sequenced(&r)
	}
	return d.record(&r, "dmesg", "")
}

// service reads a line of the log of a service, whose times are taken for UTC.
func (d *decoder) service(parse func(string, *time.Location) (schemas.Event, time.Time, bool), s string) error {
	ev, t, ok := parse(s, time.UTC)
	if !t.IsZero() {
		d.last = t
	}
	if !ok {
		return nil
	}
	ev.Time = t
	return d.write(&ev, "", d.o.Format, "")
}

func (d *decoder) sel(parse func(string) (sel.Record, error), s string) error {
	r, err := parse(s)
	if errors.Is(err, sel.ErrNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	ev := r.Event("")
	return d.write(&ev, "", "sel", strconv.Itoa(int(r.ID)))
}

// object reads an entry of the journal, or all that dmesg -J has printed.
func (d *decoder) object(b []byte) error {
	var ring struct{ Dmesg []json.RawMessage }
	if json.Unmarshal(b, &ring) == nil && ring.Dmesg != nil {
		d.res.Records += len(ring.Dmesg) - 1
		for _, raw := range ring.Dmesg {
			r, err := kernlog.ParseDmesgJSON(raw)
			if err == nil {
				err = d.record(&r, "dmesg", "")
			}
			if err := d.report(err); err != nil {
				return err
			}
		}
		return nil
	}
	r, err := kernlog.ParseJournal(b)
	if err != nil {
		var docker struct{ Log, Stream *string }
		if json.Unmarshal(b, &docker) == nil && docker.Log != nil && docker.Stream != nil {
			return errContainer
		}
		return err
	}
	return d.record(&r, r.BootID, r.Cursor)
}

func (d *decoder) journal(verbose bool) error {
	j := kernlog.NewJournal(d.in, verbose)
	first := d.line
	for {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		r, err := j.Next()
		d.line = first + j.Line()
		if errors.Is(err, io.EOF) && !errors.Is(err, kernlog.ErrEntry) {
			return nil
		}
		d.res.Records++
		if errors.Is(err, kernlog.ErrEntry) {
			if err := d.bad(err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.o.Name, err)
		}
		r.Text = strings.ToValidUTF8(r.Text, "\uFFFD")
		if err := d.record(&r, r.BootID, r.Cursor); err != nil {
			return err
		}
	}
}

// bodies calls f for each JSON text: one a line, one over several lines, or the
// elements of an array.
func (d *decoder) bodies(f func([]byte) error) error {
	if lead, err := d.lead(); err != nil {
		return err
	} else if lead == '[' {
		return d.array(f)
	}
	var body []byte
	var open brackets
	flush := func() error {
		b := body
		body, open = nil, brackets{}
		if len(bytes.TrimSpace(b)) == 0 {
			return nil
		}
		d.res.Records++
		return d.report(f(b))
	}
	for {
		line, long, err := d.readLine(maxBody)
		if len(line) > 0 {
			d.line++
		}
		line = strings.TrimPrefix(strings.TrimLeft(line, "\x1e"), "data: ") // journalctl -o json-seq, json-sse
		if d.ctx.Err() != nil {
			return d.ctx.Err()
		}
		// A whole body on a line of its own ends one that was cut off before it.
		if strings.HasPrefix(line, "{") && cutOff(body) && json.Valid([]byte(line)) {
			if err := flush(); err != nil {
				return err
			}
		}
		if long || len(body)+len(line) > maxBody {
			body, open = nil, brackets{}
			d.res.Records++
			if err := d.bad(fmt.Errorf("body is longer than %d bytes", maxBody)); err != nil {
				return err
			}
		} else {
			body = append(body, line...)
			open.read(line)
		}
		if open.closed() || errors.Is(err, io.EOF) {
			if err := flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.o.Name, err)
		}
	}
}

// cutOff reports whether a body ends where no writer would break a line.
func cutOff(body []byte) bool {
	b := bytes.TrimSpace(body)
	return len(b) > 0 && !bytes.ContainsRune([]byte("{[,:"), rune(b[len(b)-1]))
}

// report counts a bad body and passes on what must stop the run.
func (d *decoder) report(err error) error {
	var w *writeError
	if err == nil || errors.As(err, &w) {
		return err
	}
	return d.bad(err)
}

// lead returns the first character that is no blank, or 0 at the end.
func (d *decoder) lead() (byte, error) {
	for {
		b, err := d.in.Peek(1)
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", d.o.Name, err)
		}
		switch b[0] {
		case '\n':
			d.line++
			fallthrough
		case ' ', '\t', '\r':
			_, _ = d.in.Discard(1)
		default:
			return b[0], nil
		}
	}
}

func (d *decoder) array(f func([]byte) error) error {
	in := &lineCounter{r: d.in}
	dec := json.NewDecoder(in)
	first := d.line + 1
	place := func(size int) { d.line = first + in.before(dec.InputOffset()-int64(size)) }
	for {
		t, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		place(0)
		if err != nil || t != json.Delim('[') {
			return d.bad(fmt.Errorf("array is followed by other data: %v %w", t, err))
		}
		for dec.More() {
			if d.ctx.Err() != nil {
				return d.ctx.Err()
			}
			var raw json.RawMessage
			d.res.Records++
			err := dec.Decode(&raw)
			place(len(raw))
			if err != nil {
				return d.bad(fmt.Errorf("element %d: %w", d.res.Records-1, err))
			}
			if err := d.report(f(raw)); err != nil {
				return err
			}
		}
		if _, err := dec.Token(); err != nil {
			return d.bad(fmt.Errorf("array does not end: %w", err))
		}
	}
}

// lineCounter knows the ends of the lines that a decoder has read ahead.
type lineCounter struct {
	r      io.Reader
	offset int64
	ends   []int64
	passed int
}

// Read implements io.Reader.
func (l *lineCounter) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.offset+int64(i))
		}
	}
	l.offset += int64(n)
	return n, err
}

// before returns how many lines end before an offset, which must not go back.
func (l *lineCounter) before(offset int64) int {
	k := 0
	for k < len(l.ends) && l.ends[k] < offset {
		k++
	}
	l.ends, l.passed = l.ends[k:], l.passed+k
	return l.passed
}

// brackets follows the nesting of a JSON text that comes in pieces.
type brackets struct {
	depth                int
	quoted, escaped, any bool
}

func (b *brackets) read(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case b.escaped:
			b.escaped = false
		case b.quoted && c == '\\':
			b.escaped = true
		case c == '"':
			b.quoted = !b.quoted
		case b.quoted:
		case c == '{' || c == '[':
			b.depth++
			b.any = true
		case c == '}' || c == ']':
			b.depth--
		case c > ' ':
			b.any = true
		}
	}
}

// closed reports whether there was something, and every bracket is closed.
func (b *brackets) closed() bool { return b.any && b.depth <= 0 }

func (d *decoder) body(b []byte) error {
	entries, err := redfishevent.Parse(b)
	for i := range entries {
		e := &entries[i]
		ev := e.Event()
		record := ""
		if key := e.Key(); key != "" { // which may be no more than the place in its message
			record = strings.Join([]string{key, ev.Attr("origin"), ev.Attr("args")}, "\xff")
		}
		if werr := d.write(&ev, "", "redfish", record); werr != nil {
			return werr
		}
	}
	return err
}
