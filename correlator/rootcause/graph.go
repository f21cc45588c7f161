package rootcause

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Graph says who depends on whom: a caller waits for its callees, a server for its
// storage. It may hold circles.
type Graph struct {
	Nodes   []string
	Callees [][]int // by index of the caller, each list sorted
	Callers [][]int
	index   map[string]int
}

// NewGraph returns a graph of named edges, caller first.
func NewGraph(nodes []string, edges [][2]string) (*Graph, error) {
	g := &Graph{index: map[string]int{}}
	for _, n := range nodes {
		if _, ok := g.index[n]; ok {
			return nil, fmt.Errorf("node %q is there twice", n)
		}
		g.node(n)
	}
	for _, e := range edges {
		if err := g.edge(e[0], e[1]); err != nil {
			return nil, err
		}
	}
	g.sorted()
	return g, nil
}

// Index returns the place of a node in Nodes.
func (g *Graph) Index(name string) (int, bool) {
	i, ok := g.index[name]
	return i, ok
}

func (g *Graph) node(name string) int {
	i, ok := g.index[name]
	if !ok {
		i = len(g.Nodes)
		g.index[name] = i
		g.Nodes, g.Callees, g.Callers = append(g.Nodes, name), append(g.Callees, nil), append(g.Callers, nil)
	}
	return i
}

var errSelf = errors.New("a node does not depend on itself")

func (g *Graph) edge(from, to string) error {
	if from == to {
		return fmt.Errorf("%q: %w", from, errSelf)
	}
	i, j := g.node(from), g.node(to)
	if !slices.Contains(g.Callees[i], j) {
		g.Callees[i], g.Callers[j] = append(g.Callees[i], j), append(g.Callers[j], i)
	}
	return nil
}

func (g *Graph) sorted() {
	for i := range g.Nodes {
		slices.Sort(g.Callees[i])
		slices.Sort(g.Callers[i])
	}
}

// Graph reads an adjacency matrix (a row a caller, a column a callee, not zero for an
// edge; an empty first cell in the header), or edges, one a line, below the header
// `from,to`.
func (r *Reading) Graph(ctx context.Context, path string) (*Graph, error) {
	g := &Graph{index: map[string]int{}}
	var names []string
	var list bool
	rows := map[string]int{}
	err := r.each(ctx, path, func(n int, cells []string) error {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %w", path, n, fmt.Errorf(format, args...))
		}
		switch {
		case names == nil && len(cells) == 2 && strings.EqualFold(cells[0], "from") && strings.EqualFold(cells[1], "to"):
			names, list = cells, true
		case names == nil:
			if cells[0] != "" || len(cells) < 2 {
				return fail("neither the header from,to nor the names of an adjacency matrix behind an empty cell")
			}
			names = cells[1:]
			for i, name := range names {
				if name == "" || slices.Contains(names[:i], name) {
					return fail("column %d: node %q has no name or is there twice", i+2, name)
				}
				g.node(name)
			}
		case list:
			if len(cells) != 2 || cells[0] == "" || cells[1] == "" {
				return r.bad(fail("want caller,callee"))
			}
			if err := g.edge(cells[0], cells[1]); err != nil {
				return r.bad(fail("%w", err))
			}
		default:
			return r.matrixRow(g, names, rows, n, cells, fail)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(g.Nodes) == 0:
		return nil, fmt.Errorf("%s:1: no node", path)
	case !list && len(rows) < len(names):
		for _, name := range names {
			if _, ok := rows[name]; !ok {
				return nil, fmt.Errorf("%s: no row for node %q", path, name)
			}
		}
	}
	g.sorted()
	return g, nil
}

func (r *Reading) matrixRow(g *Graph, names []string, rows map[string]int, n int, cells []string, fail func(string, ...any) error) error {
	from := cells[0]
	if first, ok := rows[from]; ok {
		return fail("node %q has a row already, in line %d", from, first)
	}
	if !slices.Contains(names, from) {
		return fail("node %q has no column", from)
	}
	if len(cells) != len(names)+1 {
		return fail("%d cells after the name, not %d", len(cells)-1, len(names))
	}
	rows[from] = n
	for i, cell := range cells[1:] {
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil || v != v {
			return fail("cell %d: %q is not a number", i+2, cell)
		}
		if v == 0 {
			continue
		}
		if err := g.edge(from, names[i]); err != nil {
			if err := r.bad(fail("%w", err)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Circle returns nodes that depend on themselves through one another, the first one
// again at the end; nil where there are none.
func (g *Graph) Circle() []string {
	const open, done = 1, 2
	state := make([]int, len(g.Nodes))
	type frame struct{ node, next int }
	for root := range g.Nodes {
		if state[root] != 0 {
			continue
		}
		stack := []frame{{root, 0}}
		state[root] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(g.Callees[top.node]) {
				state[top.node] = done
				stack = stack[:len(stack)-1]
				continue
			}
			j := g.Callees[top.node][top.next]
			top.next++
			switch state[j] {
			case 0:
				state[j] = open
				stack = append(stack, frame{j, 0})
			case open:
				at := slices.IndexFunc(stack, func(f frame) bool { return f.node == j })
				var out []string
				for _, f := range stack[at:] {
					out = append(out, g.Nodes[f.node])
				}
				return append(out, g.Nodes[j])
			}
		}
	}
	return nil
}
