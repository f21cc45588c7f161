// Package replay runs recorded events through the correlator, in event time: what
// it would have decided at an outage of the past.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"auspex/correlator"
	"auspex/correlator/evidence"
	"auspex/internal/cmdb"
	"auspex/internal/textfile"
	"auspex/internal/usage"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Options says what Run reads and writes. Paths may end in .gz or
// .zst; "-" is standard input or output.
type Options struct {
	Topology string   // inventory, formats section 1
	Events   string   // events.jsonl, formats section 2
	Faults   []string // folders with fault records of the site's own
	Metrics  string   // OpenMetrics text with time stamps; empty is none
	Out      string   // incidents.jsonl, formats section 5
	Strict   bool     // a bad line stops the command
	Method   string   // of solver.Methods; "" is the default
	// Adapt puts what was learned into the model; nil leaves it as the records have it.
	Adapt   func(*propagation.Model) *propagation.Model
	MaxSize int64 // bytes of text, unpacked, that a file may hold; 0 is textfile.MaxUnpacked for packed ones

	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Result counts what a replay read and decided.
type Result struct {
	Events, Bad, Incidents int
	Duration               time.Duration
}

// Run runs recorded events through the correlator, in event time and as a
// stream: events to incidents, formats section 5. A bad line is named on
// Stderr with file, line and reason, counted and skipped; with Strict it is
// the error.
func Run(ctx context.Context, o Options) (res Result, err error) {
	began := time.Now()
	stdin := 0
	for _, path := range []string{o.Topology, o.Events, o.Metrics} {
		if path == textfile.Stdin {
			stdin++
		}
	}
	if stdin > 1 {
		return res, fmt.Errorf("%w: standard input can be one file only", usage.Err)
	}
	p := textfile.NewProgress(o.Stderr, o.Stdout)
	defer p.Clear()
	o.Stderr = p.Words(o.Stderr)
	model, err := propagation.Load(o.Faults...)
	if err != nil {
		return res, err
	}
	if o.Adapt != nil {
		model = o.Adapt(model)
	}
	topology, bad, err := o.ReadTopology()
	if err != nil {
		return res, err
	}
	res.Bad += bad
	if err := textfile.NotAnInput(o.Out, o.Topology, o.Events, o.Metrics); err != nil {
		return res, err
	}
	out, err := textfile.Create(o.Out, o.Stdout)
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
	engine := correlator.NewEngine(model, topology, nil)
	if err := engine.SetMethod(o.Method); err != nil {
		return res, fmt.Errorf("%w: %w", usage.Err, err)
	}
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
	bad, err = o.EachEvent(ctx, p, func(ev *schemas.Event) error {
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
		return add(ev)
	})
	res.Bad += bad
	if err != nil {
		return res, err
	}
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

// EachEvent hands out the events of the file in its order and returns how many
// lines were bad; they are named, as Run says.
func (o *Options) EachEvent(ctx context.Context, p *textfile.Progress, visit func(*schemas.Event) error) (bad int, err error) {
	in, err := textfile.Open(o.Events, o.Stdin, o.MaxSize)
	if err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = in.Close() }()
	name, lines := textfile.Name(o.Events), 0
	var d decoder
	err = textfile.EachLine(ctx, name, p.Reading(name, in), func(n int, line []byte, lerr error) error {
		lines++
		var ev schemas.Event
		if lerr == nil {
			lerr = d.parse(line, &ev)
		}
		if lerr != nil {
			bad++
			return o.bad(name, n, lerr)
		}
		return visit(&ev)
	})
	if err == nil {
		o.sum(name, bad, lines)
	}
	return bad, err
}

// bad reports a bad line, and stops the replay when it is strict.
func (o *Options) bad(file string, line int, reason error) error {
	err := fmt.Errorf("%s:%d: %w", file, line, reason)
	if o.Strict {
		return err
	}
	fmt.Fprintln(o.Stderr, err)
	return nil
}

// sum says how many lines of a file were skipped, if any were.
func (o *Options) sum(file string, bad, lines int) {
	if bad > 0 {
		fmt.Fprintf(o.Stderr, "%s: %d of %d lines could not be read\n", file, bad, lines)
	}
}

// readMetrics returns the events that recorded metrics stand for, by time, and
// how many lines were bad.
func readMetrics(ctx context.Context, o Options, p *textfile.Progress) ([]schemas.Event, int, error) {
	if o.Metrics == "" {
		return nil, 0, nil
	}
	in, err := textfile.Open(o.Metrics, o.Stdin, o.MaxSize)
	if err != nil {
		return nil, 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = in.Close() }()
	name, lines, bad := textfile.Name(o.Metrics), 0, 0
	r := evidence.NewReader()
	err = textfile.EachLine(ctx, name, p.Reading(name, in), func(n int, line []byte, lerr error) error {
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

// parse reads an event and checks that it has what an event must have.
func (d *decoder) parse(line []byte, ev *schemas.Event) error {
	if err := d.event(line, ev); err != nil {
		return errors.New(textfile.Reason(err))
	}
	switch {
	case ev.ID == "":
		return errors.New("event without id")
	case ev.Resource == "":
		return errors.New("event without resource")
	case ev.Type == "":
		return errors.New("event without type")
	case ev.Time.IsZero() && ev.Observed.IsZero():
		return errors.New("event without time")
	}
	if ev.Severity.Rank() < 0 {
		return fmt.Errorf("no severity %q", ev.Severity)
	}
	return nil
}

// ReadTopology reads the inventory and returns how much of it was bad. It keeps what
// does not fit together: the correlator makes the best of a link to nowhere.
func (o *Options) ReadTopology() (*schemas.Topology, int, error) {
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
