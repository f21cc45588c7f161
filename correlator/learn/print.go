package learn

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"auspex/correlator"
	"auspex/internal/hindsight"
	"auspex/schemas/faults/propagation"
)

// Print writes a report as tables.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d incidents, %d of them judged", r.Cases, r.Judged)
	if r.NoEvents > 0 {
		fmt.Fprintf(w, ", %d of these without events", r.NoEvents)
	}
	fmt.Fprintf(w, "; %d events replayed\n", r.Events)
	if !r.Records.Enough {
		fmt.Fprintf(w, "Too few are judged for a share to mean something: %d are enough.\n", hindsight.Enough)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\n\tRECORDS\tLEARNED\t\n")
	row := func(name string, of func(*hindsight.Summary) string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", name, of(&r.Records), of(r.Learned))
	}
	row("right", func(s *hindsight.Summary) string { return fmt.Sprintf("%d of %d", s.Right, s.Judged) })
	row("hit rate", func(s *hindsight.Summary) string { return fmt.Sprintf("%.3f", s.HitRate) })
	row("calibration error", func(s *hindsight.Summary) string { return fmt.Sprintf("%.3f", s.CalibrationError) })
	row("Brier score", func(s *hindsight.Summary) string { return fmt.Sprintf("%.3f", s.Brier) })
	row("right cause after, median", func(s *hindsight.Summary) string { return took(s.SecondsP50) })
	row("right cause after, p95", func(s *hindsight.Summary) string { return took(s.SecondsP95) })
	fmt.Fprintf(t, "\nCONFIDENCE\tRECORDS\tLEARNED\t\n")
	bin := func(b hindsight.Bin) string {
		if b.N == 0 {
			return "-"
		}
		return fmt.Sprintf("%d of %d", b.Right, b.N)
	}
	for k, b := range r.Records.Bins {
		fmt.Fprintf(t, "%.1f to %.1f\t%s\t%s\t\n", b.From, b.To, bin(b), bin(r.Learned.Bins[k]))
	}
	fmt.Fprintf(t, "\nIT WAS\tRECORDS\tLEARNED\tMEDIAN\tP95\t\n")
	for _, f := range r.Records.Faults {
		name := f.Fault
		if name == "" {
			name = "no incident"
		}
		k := slices.IndexFunc(r.Learned.Faults, func(l hindsight.Fault) bool { return l.Fault == f.Fault })
		l := r.Learned.Faults[k] // the same cases
		fmt.Fprintf(t, "%s\t%d of %d\t%d of %d\t%s\t%s\t\n", name, f.Right, f.N, l.Right, l.N, took(f.SecondsP50), took(f.SecondsP95))
	}
	return t.Flush()
}

func took(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return (time.Duration(*seconds * float64(time.Second))).Round(100 * time.Millisecond).String()
}

// Print writes what parameters change of a model, the most first.
func (p *Parameters) Print(w io.Writer, m *propagation.Model) error {
	m = WithEdges(m, p.Edges) // so that classes have the same numbers
	adapted := Apply(m, p)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "learned from %d incidents, %d of them judged\n", p.Cases, p.Judged)
	type line struct {
		size float64
		text string
	}
	var priors, effects []line
	for _, q := range p.Priors {
		k := slices.IndexFunc(m.Faults, func(f propagation.Fault) bool { return f.Name == q.Fault && !f.Harmless })
		if k < 0 {
			continue
		}
		was, now := m.Faults[k].Prior, adapted.Faults[k].Prior
		name := q.Fault
		if q.Model != "" {
			name, now = name+" of "+q.Model, adapted.Faults[k].ByModel[q.Model]
		}
		odds := math.Exp((now - was) / correlator.Tempering)
		priors = append(priors, line{math.Abs(now - was), fmt.Sprintf("%s\t%.1f\t%.1f\t%.2f", name, q.Was, q.Said, odds)})
	}
	for f := range m.Faults {
		for c := range m.Faults[f].Classes {
			a, b := &m.Faults[f].Classes[c], &adapted.Faults[f].Classes[c]
			if a.Shows == b.Shows && a.Share == b.Share && a.Soon == b.Soon {
				continue
			}
			e := effectOf(m, &m.Faults[f], c)
			effects = append(effects, line{
				math.Abs(a.Shows-b.Shows) + math.Abs(a.Share-b.Share),
				fmt.Sprintf(
					"%s\t%s\t%s\t%.2f → %.2f\t%.2f → %.2f\t%s → %s", e.Fault, e.Sign, cmp.Or(e.Way, "-"), a.Shows, b.Shows, a.Share, b.Share,
					a.Soon.Round(time.Second), b.Soon.Round(time.Second),
				),
			})
		}
	}
	table := func(head string, lines []line) {
		if len(lines) == 0 {
			return
		}
		slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(b.size, a.size) })
		fmt.Fprintf(t, "\n%s\n", head)
		for _, l := range lines {
			fmt.Fprintln(t, l.text)
		}
	}
	var edges []line
	for i := range p.Edges {
		e := p.Edges[i].edge()
		edges = append(edges, line{e.Shows, fmt.Sprintf(
			"%s\t%s\t%s\t%.2f\t%.2f\t%s", e.Fault, cmp.Or(e.Sign, strings.TrimSuffix(e.Type+"/"+e.Code, "/")),
			cmp.Or(p.Edges[i].Way, "-"), e.Shows, e.Share, e.Soon.Round(time.Second),
		)})
	}
	table("FAULT\tWAS\tSAID\tODDS", priors)
	table("FAULT\tSIGN\tAT\tSHOWS\tSHARE\tLAG", effects)
	table("FAULT\tACCEPTED SIGN\tAT\tSHOWS\tSHARE\tLAG", edges)
	return t.Flush()
}
