package learn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"auspex/correlator/replay"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/textfile"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// ProposeFrom reads an inventory and recorded events and returns the proposals.
func ProposeFrom(ctx context.Context, o replay.Options, m *propagation.Model) ([]Proposal, error) {
	p := textfile.NewProgress(o.Stderr, o.Stdout)
	defer p.Clear()
	o.Stderr = p.Words(o.Stderr)
	topology, _, err := o.ReadTopology()
	if err != nil {
		return nil, err
	}
	if err := textfile.NotAnInput(o.Out, o.Topology, o.Events); err != nil {
		return nil, err
	}
	s := NewSite(topology, m)
	if _, err := o.EachEvent(ctx, p, func(e *schemas.Event) error {
		s.Add(e)
		return nil
	}); err != nil {
		return nil, err
	}
	return s.proposals(ctx, o.Stderr)
}

// ProposeStored returns the proposals from the alerts that a site's store has since a time:
// of most of them at most where it is not 0, the newest.
func ProposeStored(
	ctx context.Context, db *sqldb.DB, t *schemas.Topology, m *propagation.Model, since time.Time, most int, log io.Writer,
) ([]Proposal, error) {
	st := records.New(db)
	alerts, err := upTo(most, records.Filter{Since: since}, func(f records.Filter) ([]schemas.Alert, string, error) { return st.Alerts(ctx, f) })
	if err != nil {
		return nil, err
	}
	s := NewSite(t, m)
	for _, a := range slices.Backward(alerts) { // the list begins with the newest
		s.Add(&a.Event)
	}
	return s.proposals(ctx, log)
}

func (s *Site) proposals(ctx context.Context, log io.Writer) ([]Proposal, error) {
	if dropped := s.bound(mostPairs); dropped > 0 {
		fmt.Fprintf(log, "the oldest %d of %d events are left out: together they have too much that may follow from something\n", dropped, dropped+len(s.events))
	}
	list, err := s.Propose(ctx)
	if err == nil {
		fmt.Fprintf(log, "%d events of %d kinds, %d proposals\n", len(s.events), len(s.names), len(list))
	}
	return list, err
}

// WriteProposals writes proposals as JSON lines.
func WriteProposals(path string, stdout io.Writer, list []Proposal) error {
	out, err := textfile.Create(path, stdout)
	if err != nil {
		return fmt.Errorf("write proposals: %w", err)
	}
	enc := json.NewEncoder(out)
	for i := range list {
		if err == nil {
			err = enc.Encode(&list[i])
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write proposals: %w", err)
	}
	return nil
}

// PrintProposals writes proposals as a table, with the first cause of each, or the one that
// was accepted.
func PrintProposals(out io.Writer, list []Proposal) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tCAUSE\tEFFECT\tOVER\tLAG\tSHARE\tEFFECTS\tTIMES\tGAIN\tFAULT\tAT\tSHOWN\tLIFT")
	for i := range list {
		p := &list[i]
		over, fault, at, shown, lift := "-", "-", "-", "-", "-"
		if len(p.Over) > 0 {
			over = p.Over[0].Relation
		}
		if len(p.Causes) > 0 {
			c := &p.Causes[0]
			if a, err := chosen(p, p.Decision); err == nil {
				c = a
			}
			fault, at = c.Fault, cmp.Or(strings.ReplaceAll(c.Way, " ", ""), "self")
			shown, lift = fmt.Sprintf("%.0f of %.0f", c.Shown, c.Cases), fmt.Sprintf("%.0f", c.Lift)
		}
		state := p.State
		if p.Known != "" {
			state = "known"
		}
		lag := time.Duration(p.LagS * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(
			w, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.0f\t%d\t%.0f\t%s\t%s\t%s\t%s\n", p.ID, state, p.Cause, p.Effect, over, lag, p.Share, p.Effects,
			p.Times, p.Gain, fault, at, shown, lift,
		)
	}
	return w.Flush()
}
