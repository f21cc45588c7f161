package detect

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// grew names the counters of which a rule says that one has grown within its window, as
// `max by (resource) (increase(rows[1h])) > 0` does; none where a rule says more than that.
// Such a rule goes on firing when all is well again, until its window has passed; whoever
// reads the counters knows earlier.
func grew(e parser.Expr) []string {
	names := holds(e)
	slices.Sort(names)
	return slices.Compact(names)
}

// holds are the counters of which none has to have grown for the condition not to hold.
func holds(e parser.Expr) []string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return holds(e.Expr)
	case *parser.AggregateExpr:
		return aggregated(e, holds)
	case *parser.BinaryExpr:
		switch e.Op {
		case parser.GTR, parser.NEQ:
			if n, ok := e.RHS.(*parser.NumberLiteral); ok && n.Val == 0 && !e.ReturnBool {
				return counted(e.LHS)
			}
		case parser.LAND:
			if l := holds(e.LHS); l != nil {
				return l
			}
			return holds(e.RHS)
		case parser.LUNLESS:
			return holds(e.LHS)
		case parser.LOR:
			return both(holds(e.LHS), holds(e.RHS))
		}
	}
	return nil
}

// counted are the counters of whose growth an expression is a measure.
func counted(e parser.Expr) []string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return counted(e.Expr)
	case *parser.AggregateExpr:
		return aggregated(e, counted)
	case *parser.Call:
		if e.Func.Name != "increase" && e.Func.Name != "rate" && e.Func.Name != "irate" {
			return nil
		}
		if m, ok := e.Args[0].(*parser.MatrixSelector); ok {
			if v, ok := m.VectorSelector.(*parser.VectorSelector); ok && v.Name != "" && !strings.ContainsRune(v.Name, ' ') {
				return []string{v.Name}
			}
		}
	case *parser.BinaryExpr:
		switch e.Op {
		case parser.LAND, parser.LUNLESS:
			return counted(e.LHS)
		case parser.LOR, parser.ADD:
			return both(counted(e.LHS), counted(e.RHS))
		}
	}
	return nil
}

// aggregated leaves out what makes another number of growth than growth: a count, a deviation.
func aggregated(e *parser.AggregateExpr, of func(parser.Expr) []string) []string {
	if slices.Contains([]parser.ItemType{parser.MAX, parser.SUM, parser.AVG, parser.MIN}, e.Op) {
		return of(e.Expr)
	}
	return nil
}

func both(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	return slices.Concat(a, b)
}
