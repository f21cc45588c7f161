package learn

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"auspex/correlator/replay"
	"auspex/internal/store/corrections"
	"auspex/internal/store/learned"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/textfile"
	"auspex/internal/usage"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Files says where the past of a site is in files.
type Files struct {
	replay.Options        // Topology, Events and how to read them
	Incidents      string // incidents.jsonl, formats section 5; the last line of an id counts
	Corrections    string // corrections.jsonl, one Correction a line; empty is none
	Edges          string // edges.jsonl, one Standing a line; empty is none
}

// ReadPast reads the past of a site from files.
func ReadPast(ctx context.Context, f Files) (*Past, error) {
	stdin := 0
	for _, path := range []string{f.Topology, f.Events, f.Incidents, f.Corrections, f.Edges} {
		if path == textfile.Stdin {
			stdin++
		}
	}
	if stdin > 1 {
		return nil, fmt.Errorf("%w: standard input can be one file only", usage.Err)
	}
	p := textfile.NewProgress(f.Stderr, f.Stdout)
	defer p.Clear()
	f.Stderr = p.Words(f.Stderr)
	topology, _, err := f.ReadTopology()
	if err != nil {
		return nil, err
	}
	incidents, err := lines(ctx, f, p, "incidents", f.Incidents, func(i *schemas.Incident) error {
		if i.ID == "" || i.Opened.IsZero() {
			return errors.New("incident without id or time")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	verdicts, err := lines(ctx, f, p, "corrections", f.Corrections, func(c *schemas.Correction) error {
		if c.Incident == "" || !slices.Contains(schemas.Verdicts(), c.Verdict) {
			return errors.New("correction without incident or verdict")
		}
		if (c.Verdict == schemas.VerdictRight || c.Verdict == schemas.VerdictCause) && (c.Resource == "" || c.Fault == "") {
			return errors.New("correction without resource or fault")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	standing, err := lines(ctx, f, p, "edges", f.Edges, func(s *Standing) error {
		if s.From.IsZero() {
			return errors.New("edges without a time")
		}
		doc, err := json.Marshal(&Parameters{Format: format, Edges: s.Edges})
		if err == nil {
			_, err = Parse(doc)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	past := NewPast(topology, incidents, verdicts)
	past.SetStanding(standing)
	if _, err := f.EachEvent(ctx, p, func(ev *schemas.Event) error {
		past.Add(ev)
		return nil
	}); err != nil {
		return nil, err
	}
	return past, nil
}

// lines reads JSON lines; a bad one is named, counted and skipped, or with Strict the error.
func lines[T any](ctx context.Context, f Files, p *textfile.Progress, what, path string, check func(*T) error) ([]T, error) {
	if path == "" {
		return nil, nil
	}
	in, err := textfile.Open(path, f.Stdin, f.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer func() { _ = in.Close() }()
	name, bad, all := textfile.Name(path), 0, 0
	var out []T
	err = textfile.EachLine(ctx, name, p.Reading(name, in), func(n int, line []byte, lerr error) error {
		all++
		var v T
		if lerr == nil {
			if lerr = json.Unmarshal(line, &v); lerr != nil {
				lerr = errors.New(textfile.Reason(lerr))
			} else {
				lerr = check(&v)
			}
		}
		if lerr == nil {
			out = append(out, v)
			return nil
		}
		bad++
		lerr = fmt.Errorf("%s:%d: %w", name, n, lerr)
		if f.Strict {
			return lerr
		}
		fmt.Fprintln(f.Stderr, lerr)
		return nil
	})
	if bad > 0 && err == nil {
		fmt.Fprintf(f.Stderr, "%s: %d of %d lines could not be read\n", name, bad, all)
	}
	return out, err
}

// page is how many records are read at once.
const page = 1000

// all reads a list to its end.
func all[T any](f records.Filter, list func(records.Filter) ([]T, string, error)) (out []T, err error) {
	return upTo(0, f, list)
}

// upTo reads a list to its end, or where most is not 0 until it has so many.
func upTo[T any](most int, f records.Filter, list func(records.Filter) ([]T, string, error)) (out []T, err error) {
	for f.Limit = page; ; {
		if most > 0 {
			f.Limit = min(page, most-len(out))
		}
		items, next, err := list(f)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if f.After = next; next == "" || most > 0 && len(out) >= most {
			return out, nil
		}
	}
}

// StoredPast reads the past of a site from the relational store: what the correlator
// had decided, what people said of it, and the alerts that it had been given.
func StoredPast(ctx context.Context, db *sqldb.DB, t *schemas.Topology) (*Past, error) {
	past, _, _, err := stored(ctx, db, t)
	return past, err
}

func stored(ctx context.Context, db *sqldb.DB, t *schemas.Topology) (*Past, []schemas.Incident, []schemas.Correction, error) {
	st := records.New(db)
	incidents, err := all(records.Filter{}, func(f records.Filter) ([]schemas.Incident, string, error) { return st.Incidents(ctx, f) })
	if err != nil {
		return nil, nil, nil, err
	}
	verdicts, err := corrections.New(db).All(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	past := NewPast(t, incidents, verdicts)
	standing, err := Stored{learned.New(db)}.Standing(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	past.SetStanding(standing)
	from, _ := past.Span()
	if from.IsZero() {
		return past, incidents, verdicts, nil
	}
	var events []schemas.Event
	f := records.Filter{Since: from, Limit: page}
	for {
		alerts, next, err := st.Alerts(ctx, f)
		if err != nil {
			return nil, nil, nil, err
		}
		for i := range alerts {
			if past.wants(&alerts[i].Event) {
				events = append(events, alerts[i].Event)
			}
		}
		if f.After = next; next == "" {
			break
		}
	}
	slices.Reverse(events) // the list begins with the newest
	for i := range events {
		past.Add(&events[i])
	}
	return past, incidents, verdicts, nil
}

// Export writes the past of a site from the relational store to a folder, as ReadPast
// reads it: incidents.jsonl, corrections.jsonl, edges.jsonl and events.jsonl.
func Export(ctx context.Context, db *sqldb.DB, t *schemas.Topology, dir string) (incidents, verdicts, events int, err error) {
	past, is, cs, err := stored(ctx, db, t)
	if err != nil {
		return 0, 0, 0, err
	}
	var evs []schemas.Event
	for _, w := range past.windows {
		evs = append(evs, w.events...)
	}
	slices.Reverse(is) // oldest first
	err = errors.Join(
		write(filepath.Join(dir, "incidents.jsonl"), is), write(filepath.Join(dir, "corrections.jsonl"), cs),
		write(filepath.Join(dir, "edges.jsonl"), past.stood), write(filepath.Join(dir, "events.jsonl"), evs),
	)
	return len(is), len(cs), len(evs), err
}

func write[T any](path string, items []T) (err error) {
	out, err := textfile.Create(path, io.Discard)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	for i := range items {
		if err == nil {
			err = enc.Encode(&items[i])
		}
	}
	if err = errors.Join(err, w.Flush(), out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// Stored is where a running correlator finds what was learned.
type Stored struct{ *learned.Store }

// Adapt implements correlator.Learned.
func (s Stored) Adapt(ctx context.Context, version int64, m *propagation.Model) (*propagation.Model, error) {
	p, err := s.Parameters(ctx, version)
	if err != nil {
		return nil, err
	}
	return Apply(m, p), nil
}

// Parameters returns a version.
func (s Stored) Parameters(ctx context.Context, version int64) (*Parameters, error) {
	v, err := s.Get(ctx, version)
	if err != nil {
		return nil, err
	}
	return Parse(v.Doc)
}

// Keep stores parameters as a new version, which is not in force.
func (s Stored) Keep(ctx context.Context, p *Parameters, author string, at time.Time) (int64, error) {
	doc, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	return s.Put(ctx, author, at, doc)
}

// Edges returns the edges that stand: those of accepted proposals, and those that the
// version in force has from elsewhere.
func (s Stored) Edges(ctx context.Context) ([]EdgeCounts, error) {
	var edges []EdgeCounts
	v, err := s.Active(ctx)
	if err == nil && v > 0 {
		var p *Parameters
		if p, err = s.Parameters(ctx, v); err == nil {
			edges = p.foreign()
		}
	}
	if err != nil {
		return nil, err
	}
	list, err := s.Proposals(ctx, schemas.EdgeAccepted)
	if err != nil {
		return nil, err
	}
	own, err := accepted(list)
	return merged(edges, own), err
}

// Standing returns which edges were in force when.
func (s Stored) Standing(ctx context.Context) ([]Standing, error) {
	turns, err := s.Turns(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Standing, 0, len(turns))
	for _, t := range turns {
		now := Standing{From: t.Time, Edges: []EdgeCounts{}}
		if t.Version > 0 {
			p, err := s.Parameters(ctx, t.Version)
			if err != nil {
				return nil, err
			}
			now.Edges = append(now.Edges, p.Edges...)
		}
		out = append(out, now)
	}
	return out, nil
}

// foreign returns the edges that are of no proposal.
func (p *Parameters) foreign() []EdgeCounts {
	return slices.DeleteFunc(slices.Clone(p.Edges), func(e EdgeCounts) bool { return e.Proposal != "" })
}

// accepted returns the edges that people accepted.
func accepted(list []Proposal) (out []EdgeCounts, err error) {
	for i := range list {
		c, err := chosen(&list[i], list[i].Decision)
		if err != nil {
			return nil, err
		}
		e := countsOf(c)
		e.Proposal = list[i].ID
		out = append(out, *e)
	}
	return out, nil
}

// chosen returns the cause of a proposal that a decision names.
func chosen(p *Proposal, d *schemas.EdgeDecision) (*schemas.EdgeCause, error) {
	for i := range p.Causes {
		if c := &p.Causes[i]; d != nil && c.Fault == d.Fault && slices.Equal(c.Kinds, d.Kinds) && c.Way == d.Way {
			return c, nil
		}
	}
	return nil, fmt.Errorf("proposal %s: %w", p.ID, learned.ErrNoCause)
}

// Decide takes the decision of a person on a proposal. One that is accepted without a
// cause is of the first one listed. What is accepted, and what is taken back, makes a new
// version of the parameters, which is in force at once: the one before with the edge in
// it, or without.
func (s Stored) Decide(ctx context.Context, id string, d schemas.EdgeDecision) (Proposal, error) {
	p, err := s.Proposal(ctx, id)
	if err != nil {
		return p, err
	}
	if d.Decision == schemas.EdgeAccepted {
		for i := range p.Causes { // in the order of their gain
			c := &p.Causes[i]
			if (d.Fault == "" || d.Fault == c.Fault) && (len(d.Kinds) == 0 || slices.Equal(d.Kinds, c.Kinds)) && (d.Way == "" || d.Way == c.Way) {
				d.Fault, d.Kinds, d.Way = c.Fault, c.Kinds, c.Way
				break
			}
		}
	}
	return s.Store.Decide(ctx, id, d, func(doc []byte, list []Proposal) ([]byte, error) {
		now := &Parameters{Format: format, Learned: d.Time, Priors: []FaultCounts{}, Effects: []EffectCounts{}}
		if doc != nil {
			if now, err = Parse(doc); err != nil {
				return nil, err
			}
		}
		// Edges of a file that was imported stay; those of proposals are what is accepted now.
		edges, err := accepted(list)
		if err != nil {
			return nil, err
		}
		now.Edges = merged(now.foreign(), edges)
		out, err := json.Marshal(now)
		if err == nil {
			_, err = Parse(out) // what cannot be read again is not put in force
		}
		return out, err
	})
}

// merged adds edges to others that are not the same.
func merged(list, more []EdgeCounts) []EdgeCounts {
	for _, e := range more {
		list = slices.DeleteFunc(list, func(o EdgeCounts) bool { return o.key() == e.key() })
		list = append(list, e)
	}
	return list
}

// KeepProposals stores the proposals that no record has already, and returns how many are
// new and how many were left out as known.
func (s Stored) KeepProposals(ctx context.Context, list []Proposal, at time.Time) (added, known int, err error) {
	var fresh []Proposal
	for _, p := range list {
		if p.Found = at; p.Known == "" {
			fresh = append(fresh, p)
		}
	}
	added, err = s.Propose(ctx, fresh)
	return added, len(list) - len(fresh), err
}
