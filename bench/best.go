package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"auspex/internal/stormgen"
	"auspex/internal/stormgen/score"
)

// beside is a fault as we told it, beside what could be known of it at best.
type beside struct {
	miss // where to draw it again, and what we made of it

	best     stormgen.Best
	stranger stormgen.Best // who does not know what is peculiar to the storm
}

// observers say what could be known of storms over one site.
type observers struct{ knowing, stranger *stormgen.Observer }

func newObservers(samples int) *observers {
	return &observers{stormgen.NewObserver(samples, false), stormgen.NewObserver(samples, true)}
}

// besides holds the rows of a storm against what observers make of it who know the generator.
func besides(st *stormgen.Storm, of *observers, m miss, rows []score.Row) (out []beside) {
	by := map[string]*score.Row{}
	for i := range rows {
		by[rows[i].ID] = &rows[i]
	}
	strange := of.stranger.Best(st)
	for i, b := range of.knowing.Best(st) { // both speak of the same faults
		if r := by[b.Fault]; r != nil {
			m.row = *r
			out = append(out, beside{m, b, strange[i]})
		}
	}
	return out
}

// late is by how many seconds we may be later than the best before it is worth a line.
const late = 60

// writeBest writes how far we are from the best, by what happened, and where it is worth looking.
func writeBest(b *strings.Builder, list []beside, lines int) {
	b.WriteString("\n| what happened | half | n | right | at best | expected | stranger | expected | either | root p95 s | at best | stranger | rival |\n|" +
		strings.Repeat("---|", 13) + "\n")
	names := []string{""}
	for _, x := range list {
		if !slices.Contains(names, x.row.Scenario) {
			names = append(names, x.row.Scenario)
		}
	}
	slices.Sort(names)
	for _, h := range halves {
		for _, name := range names {
			of := slices.DeleteFunc(slices.Clone(list), func(x beside) bool { return x.half != h || name != "" && x.row.Scenario != name })
			if len(of) > 0 {
				writeBeside(b, cmp.Or(name, "all"), h, of)
			}
		}
	}
	b.WriteString("\n| shape | profile | seed | start | what happened | resource | taken for | resource | after s | at best after s | stranger | sure | rival |\n|" +
		strings.Repeat("---|", 13) + "\n")
	for _, x := range list {
		r := &x.row
		wrong := !r.Hit && x.best.Right
		strange := "never"
		if x.stranger.Right {
			strange = number(x.stranger.Stable, 0)
		}
		if lines == 0 || !wrong && !(r.Hit && x.best.Right && r.Stable > x.best.Stable+late) {
			continue
		}
		lines--
		after := "never"
		if r.Hit {
			after = number(r.Stable, 0)
		}
		fmt.Fprintf(b, "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %.0f | %s | %.2f | %s %.2f |\n", x.shape, x.profile, x.seed,
			r.Start.Format("01-02T15:04:05"), r.Scenario, r.Resource, cmp.Or(r.Named, "nothing"), r.NamedResource, after, x.best.Stable, strange, x.best.P,
			x.best.Rival, x.best.RivalP)
	}
}

func writeBeside(b *strings.Builder, name string, h stormgen.Half, of []beside) {
	var right, best, said, strange, strangeSaid, either float64
	var ours, theirs, strangers []float64
	rivals := map[string]int{}
	for _, x := range of {
		said += x.best.P
		strangeSaid += x.stranger.P
		if x.row.Hit {
			right++
			ours = append(ours, x.row.Stable)
		}
		if x.best.Right {
			best++
			theirs = append(theirs, x.best.Stable)
		} else {
			rivals[x.best.Rival]++
		}
		if x.stranger.Right {
			strange++
			strangers = append(strangers, x.stranger.Stable)
		}
		if x.row.Hit || x.best.Right || x.stranger.Right {
			either++
		}
	}
	rival, most := "", 0
	for r, n := range rivals {
		if n > most || n == most && r < rival {
			rival, most = r, n
		}
	}
	n := float64(len(of))
	p95 := func(v []float64) string { return number(score.Quantile(v, 0.95), 0) }
	line := []string{
		name, string(h), strconv.Itoa(len(of)), number(right/n, 3), number(best/n, 3), number(said/n, 3), number(strange/n, 3), number(strangeSaid/n, 3),
		number(either/n, 3), p95(ours), p95(theirs), p95(strangers), rival,
	}
	b.WriteString("| " + strings.Join(line, " | ") + " |\n")
}
