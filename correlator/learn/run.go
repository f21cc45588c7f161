package learn

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"auspex/correlator/replay"
	"auspex/internal/textfile"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Run reads an inventory and recorded events and writes the proposals: as JSON lines
// to a file, as a table to standard output.
func Run(ctx context.Context, o replay.Options) (err error) {
	p := textfile.NewProgress(o.Stderr, o.Stdout)
	defer p.Clear()
	o.Stderr = p.Words(o.Stderr)
	model, err := propagation.Load(o.Faults...)
	if err != nil {
		return err
	}
	topology, _, err := o.ReadTopology()
	if err != nil {
		return err
	}
	if o.Out != "" {
		if err := textfile.NotAnInput(o.Out, o.Topology, o.Events); err != nil {
			return err
		}
	}
	s := NewSite(topology, model)
	if _, err := o.EachEvent(ctx, p, func(e *schemas.Event) error {
		s.Add(e)
		return nil
	}); err != nil {
		return err
	}
	proposals, err := s.Propose(ctx)
	if err != nil {
		return err
	}
	p.Clear()
	fmt.Fprintf(o.Stderr, "%d events of %d kinds, %d proposals\n", len(s.events), len(s.names), len(proposals))
	if o.Out == "" {
		return table(o, proposals)
	}
	out, err := textfile.Create(o.Out, o.Stdout)
	if err != nil {
		return fmt.Errorf("write proposals: %w", err)
	}
	defer func() {
		if cerr := out.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("write proposals: %w", cerr)
		}
	}()
	enc := json.NewEncoder(out)
	for i := range proposals {
		if err := enc.Encode(&proposals[i]); err != nil {
			return fmt.Errorf("write proposals: %w", err)
		}
	}
	return nil
}

func table(o replay.Options, proposals []Proposal) error {
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CAUSE\tEFFECT\tOVER\tLAG\tSHARE\tEFFECTS\tTIMES\tGAIN")
	for _, p := range proposals {
		over := "-"
		if len(p.Over) > 0 {
			over = p.Over[0].Relation
		}
		lag := time.Duration(p.LagS * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%.0f\t%d\t%.0f\n", p.Cause, p.Effect, over, lag, p.Share, p.Effects, p.Times, p.Gain)
	}
	return w.Flush()
}
