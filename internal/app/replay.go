package app

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"auspex/correlator"
	"auspex/correlator/evidence"
	"auspex/internal/cmdb"
	"auspex/internal/textfile"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// ReplayOptions says what Replay reads and writes. Paths may end in .gz or
// .zst; "-" is standard input or output.
type ReplayOptions struct {
	Topology string // inventory, formats section 1
	Events   string // events.jsonl, formats section 2
	Metrics  string // OpenMetrics text with time stamps; empty is none
	Out      string // incidents.jsonl, formats section 5
	Strict   bool   // a bad line stops the command

	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// ReplayResult counts what a replay read and decided.
type ReplayResult struct {
	Events, Bad, Incidents int
	Duration               time.Duration
}

// maxLine bounds a line of an event file in bytes.
const maxLine = 4 << 20

// Replay runs recorded events through the correlator, in event time and as a
// stream: events to incidents, formats section 5. A bad line is named on
// Stderr with file, line and reason, counted and skipped; with Strict it is
// the error.
func Replay(ctx context.Context, o ReplayOptions) (res ReplayResult, err error) {
	began := time.Now()
	stdin := 0
	for _, path := range []string{o.Topology, o.Events, o.Metrics} {
		if path == textfile.Stdin {
			stdin++
		}
	}
	if stdin > 1 {
		return res, fmt.Errorf("%w: standard input can be one file only", ErrUsage)
	}
	p := newProgress(o.Stderr, o.Stdout)
	defer p.clear()
	o.Stderr = p.words(o.Stderr)
	topology, bad, err := readTopology(o)
	if err != nil {
		return res, err
	}
	res.Bad += bad
	in, err := textfile.Open(o.Events, o.Stdin)
	if err != nil {
		return res, fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = in.Close() }()
	if err := notAnInput(o.Out, o.Topology, o.Events, o.Metrics); err != nil {
		return res, err
	}
	out, err := openOutput(o.Out, o.Stdout)
	if err != nil {
		return res, fmt.Errorf("write incidents: %w", err)
	}
	defer func() {
		if cerr := out.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("write incidents: %w", cerr)
		}
		res.Duration = time.Since(began)
	}()
	enc := json.NewEncoder(out)
	engine := correlator.NewEngine(propagation.Default(), topology, nil)
	ids := map[string]struct{}{}
	write := func() error {
		for _, inc := range engine.Drain() {
			ids[inc.ID] = struct{}{}
			if err := enc.Encode(&inc); err != nil {
				return fmt.Errorf("write incidents: %w", err)
			}
		}
		return nil
	}
	// What the metrics say, in its place among the events.
	derived, bad, err := readMetrics(ctx, o, p)
	if err != nil {
		return res, err
	}
	res.Bad += bad
	add := func(ev *schemas.Event) error {
		res.Events++
		engine.Add(ev)
		return write()
	}
	name, lines, badLines := textfile.Name(o.Events), 0, 0
	err = eachLine(ctx, name, p.reading(name, in), func(n int, line []byte, lerr error) error {
		lines++
		var ev schemas.Event
		if lerr == nil {
			ev, lerr = parseEvent(line)
		}
		if lerr != nil {
			badLines++
			return o.bad(name, n, lerr)
		}
		seen := ev.Observed
		if seen.IsZero() {
			seen = ev.Time
		}
		for len(derived) > 0 && !derived[0].Observed.After(seen) {
			if err := add(&derived[0]); err != nil {
				return err
			}
			derived = derived[1:]
		}
		return add(&ev)
	})
	res.Bad += badLines
	if err != nil {
		return res, err
	}
	o.sum(name, badLines, lines)
	for i := range derived {
		if err := add(&derived[i]); err != nil {
			return res, err
		}
	}
	engine.Advance(engine.Now().Add(2 * time.Minute)) // what waits for something to come back
	engine.Flush()
	if err := write(); err != nil {
		return res, err
	}
	res.Incidents = len(ids)
	return res, nil
}

// bad reports a bad line, and stops the replay when it is strict.
func (o *ReplayOptions) bad(file string, line int, reason error) error {
	err := fmt.Errorf("%s:%d: %w", file, line, reason)
	if o.Strict {
		return err
	}
	fmt.Fprintln(o.Stderr, err)
	return nil
}

// sum says how many lines of a file were skipped, if any were.
func (o *ReplayOptions) sum(file string, bad, lines int) {
	if bad > 0 {
		fmt.Fprintf(o.Stderr, "%s: %d of %d lines could not be read\n", file, bad, lines)
	}
}

// readMetrics returns the events that recorded metrics stand for, by time, and
// how many lines were bad.
func readMetrics(ctx context.Context, o ReplayOptions, p *progress) ([]schemas.Event, int, error) {
	if o.Metrics == "" {
		return nil, 0, nil
	}
	in, err := textfile.Open(o.Metrics, o.Stdin)
	if err != nil {
		return nil, 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = in.Close() }()
	name, lines, bad := textfile.Name(o.Metrics), 0, 0
	r := evidence.NewReader()
	err = eachLine(ctx, name, p.reading(name, in), func(n int, line []byte, lerr error) error {
		lines++
		var s evidence.Sample
		ok := false
		if lerr == nil {
			s, ok, lerr = evidence.Parse(string(line))
		}
		if ok {
			lerr = r.Add(s)
		}
		if lerr != nil {
			bad++
			return o.bad(name, n, lerr)
		}
		return nil
	})
	if err == nil {
		o.sum(name, bad, lines)
	}
	return r.Events(), bad, err
}

// eachLine hands out the lines of a file that are not blank; a line that is
// too long comes as an error.
func eachLine(ctx context.Context, name string, in io.Reader, f func(n int, line []byte, err error) error) error {
	lines := newLineReader(in)
	for {
		line, n, err := lines.next()
		long := errors.Is(err, errLongLine)
		if err != nil && !long && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if long {
			if err := f(n, nil, err); err != nil {
				return err
			}
			continue
		}
		if len(line) > 0 {
			if err := f(n, line, nil); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func parseEvent(line []byte) (schemas.Event, error) {
	var ev schemas.Event
	if err := json.Unmarshal(line, &ev); err != nil {
		return ev, errors.New(textfile.Reason(err))
	}
	switch {
	case ev.ID == "":
		return ev, errors.New("event without id")
	case ev.Resource == "":
		return ev, errors.New("event without resource")
	case ev.Type == "":
		return ev, errors.New("event without type")
	case ev.Time.IsZero() && ev.Observed.IsZero():
		return ev, errors.New("event without time")
	}
	if ev.Severity.Rank() < 0 {
		return ev, fmt.Errorf("no severity %q", ev.Severity)
	}
	return ev, nil
}

// readTopology keeps what does not fit together: the correlator makes the best of
// a link to nowhere.
func readTopology(o ReplayOptions) (*schemas.Topology, int, error) {
	t, problems, err := cmdb.ReadRecords(o.Topology, o.Stdin)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range problems {
		if o.Strict {
			return nil, 0, errors.New(p.In(o.Topology))
		}
		fmt.Fprintln(o.Stderr, p.In(o.Topology))
	}
	return &t, len(problems), nil
}

// notAnInput refuses an output that would overwrite what is read.
func notAnInput(out string, inputs ...string) error {
	for _, in := range inputs {
		if sameFile(out, in) {
			return fmt.Errorf("%w: the output would overwrite the input %s", ErrUsage, in)
		}
	}
	return nil
}

func sameFile(a, b string) bool {
	sa, err := os.Stat(a)
	if err != nil || !sa.Mode().IsRegular() && !sa.IsDir() {
		return false
	}
	sb, err := os.Stat(b)
	return err == nil && os.SameFile(sa, sb)
}

type output struct {
	io.Writer
	close []func() error
}

func (w *output) Close() error {
	var err error
	for i := len(w.close) - 1; i >= 0; i-- {
		err = errors.Join(err, w.close[i]())
	}
	return err
}

func openOutput(path string, stdout io.Writer) (io.WriteCloser, error) {
	if path == "-" || path == "" {
		b := bufio.NewWriter(stdout)
		return &output{b, []func() error{b.Flush}}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	b := bufio.NewWriterSize(f, 1<<16)
	w := &output{b, []func() error{f.Close, b.Flush}}
	switch {
	case strings.HasSuffix(path, ".gz"):
		z := gzip.NewWriter(b)
		w.Writer, w.close = z, append(w.close, z.Close)
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewWriter(b)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		w.Writer, w.close = z, append(w.close, z.Close)
	}
	return w, nil
}

var errLongLine = fmt.Errorf("line is longer than %d bytes", maxLine)

// lineReader hands out lines without their end, and survives long ones.
type lineReader struct {
	r   *bufio.Reader
	n   int
	buf []byte
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 1<<16)} }

// next returns the next line and its number; blank lines come back empty. The
// last line may come with io.EOF.
func (l *lineReader) next() ([]byte, int, error) {
	l.n++
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if !long {
			l.buf = append(l.buf, part...)
			long = len(l.buf) > maxLine
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			return nil, l.n, errLongLine
		}
		return bytes.TrimSpace(l.buf), l.n, err
	}
}
