package rootcause

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Roles names the metrics whose meaning is known. Each other metric only counts as
// moved or not moved.
type Roles struct {
	Latency      []string // time that a call takes; calls wait for their callees
	Requests     []string // calls in the time of a row
	Availability []string // share of calls that do not fail, up to 1 or up to 100
	Errors       []string // failed calls in the time of a row
}

// DefaultRoles are the usual names.
func DefaultRoles() Roles {
	return Roles{
		Latency:      []string{"latency", "duration", "response_time"},
		Requests:     []string{"requests", "calls"},
		Availability: []string{"availability"},
		Errors:       []string{"errors", "faults"},
	}
}

// kind is a way in which a node can be worse than usual.
type kind int

const (
	slow    kind = iota // calls take longer
	failing             // more calls fail
	strange             // another metric moved
	silent              // calls no longer come, or are no longer reported
	kinds
)

// additive reports whether what a callee has too much of its callers have too.
func (k kind) additive() bool { return k <= failing }

// means are the statistics that add up along calls.
var means = []string{"average", "avg", "mean", "", "sum"}

// readings are those of one node in one table.
type readings struct {
	requests []float64
	values   [2][]float64 // of slow and failing; nil is none
	others   []reading
}

type reading struct {
	column Column
	values []float64
}

// choose returns the statistic of a metric that adds up, or the first.
func choose(all []reading, names []string) *reading {
	var best *reading
	rank := len(means) + 1
	for i, r := range all {
		if !named(r.column.Metric, names) {
			continue
		}
		k := slices.Index(means, strings.ToLower(r.column.Statistic))
		if k < 0 {
			k = len(means)
		}
		if k < rank {
			best, rank = &all[i], k
		}
	}
	return best
}

func named(metric string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, metric) })
}

func (r Roles) known(metric string) bool {
	return named(metric, slices.Concat(r.Latency, r.Requests, r.Availability, r.Errors))
}

// Site is what is known of a site before anything happens: who depends on whom, and how
// its metrics usually run.
type Site struct {
	Graph  *Graph
	Roles  Roles
	normal *Table
	byNode map[string][]Column
	whole  float64 // availability where nothing fails: 1 or 100
}

// NewSite returns a site. Readings of nodes that the graph does not know are left out:
// nobody could say what depends on them.
func NewSite(g *Graph, normal *Table, roles Roles) (*Site, error) {
	s := &Site{Graph: g, Roles: roles, normal: normal, byNode: byNode(normal), whole: 1}
	if len(normal.Times) < minNormal {
		return nil, fmt.Errorf("%s: %d rows of normal operation, want %d or more", normal.Path, len(normal.Times), minNormal)
	}
	known := 0
	for _, n := range g.Nodes {
		if len(s.byNode[n]) > 0 {
			known++
		}
	}
	if known == 0 {
		return nil, fmt.Errorf("%s: no column of any node of the graph", normal.Path)
	}
	for c, values := range normal.Columns {
		if named(c.Metric, roles.Availability) && slices.ContainsFunc(values, func(v float64) bool { return v > 1 }) {
			s.whole = 100
		}
	}
	return s, nil
}

// minNormal is the least experience that a tail can be read from.
const minNormal = 20

func byNode(t *Table) map[string][]Column {
	out := map[string][]Column{}
	for c := range t.Columns {
		out[c.Node] = append(out[c.Node], c)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b Column) int {
			return strings.Compare(a.Metric+"\x00"+a.Statistic, b.Metric+"\x00"+b.Statistic)
		})
	}
	return out
}

// read returns the readings of a node.
func (s *Site) read(t *Table, columns []Column) readings {
	var all []reading
	for _, c := range columns {
		all = append(all, reading{c, t.Columns[c]})
	}
	var out readings
	if r := choose(all, s.Roles.Requests); r != nil {
		out.requests = r.values
	}
	if r := choose(all, s.Roles.Latency); r != nil {
		out.values[slow] = r.values
	}
	if r := choose(all, s.Roles.Errors); r != nil && out.requests != nil {
		out.values[failing] = each(r.values, func(i int, v float64) float64 { return v / out.requests[i] })
	}
	if r := choose(all, s.Roles.Availability); r != nil {
		out.values[failing] = each(r.values, func(_ int, v float64) float64 { return 1 - v/s.whole })
	}
	for _, r := range all {
		if !s.Roles.known(r.column.Metric) {
			out.others = append(out.others, r)
		}
	}
	return out
}

// each maps values; what is no number then is missing.
func each(values []float64, f func(int, float64) float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		if out[i] = f(i, v); math.IsInf(out[i], 0) {
			out[i] = math.NaN()
		}
	}
	return out
}

// kindOf is the kind of trouble that a metric shows.
func (s *Site) kindOf(metric string) kind {
	switch {
	case named(metric, s.Roles.Latency):
		return slow
	case named(metric, slices.Concat(s.Roles.Availability, s.Roles.Errors)):
		return failing
	case named(metric, s.Roles.Requests):
		return silent
	}
	return strange
}
