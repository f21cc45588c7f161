package detect

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// grew names the counters of which a rule says no more than that one has grown within its
// window, as `max by (resource) (increase(rows[1h])) > 0` does; none for other rules. Such a
// rule goes on firing when all is well again, until its window has passed; whoever reads the
// counters knows earlier.
func grew(e parser.Expr) []string {
	names := growth(e, false)
	slices.Sort(names)
	return slices.Compact(names)
}

// grewIn is grew as [schemas.AttrGrew] has it, of an expression as it is written.
func grewIn(expr string) string {
	e, err := newLoader().Parse(expr)
	if err != nil {
		return "" // it was parsed when its rule was loaded
	}
	return strings.Join(grew(e), " ")
}

// growth names the counters whose growth an expression measures, or, where it is a condition,
// finds to be above zero.
func growth(e parser.Expr, measure bool) []string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return growth(e.Expr, measure)
	case *parser.AggregateExpr: // a count or a deviation of growth is no growth
		if slices.Contains([]parser.ItemType{parser.MAX, parser.SUM, parser.AVG, parser.MIN}, e.Op) {
			return growth(e.Expr, measure)
		}
	case *parser.BinaryExpr:
		switch {
		case e.Op == parser.LOR, e.Op == parser.ADD && measure:
			if l, r := growth(e.LHS, measure), growth(e.RHS, measure); l != nil && r != nil {
				return slices.Concat(l, r)
			}
		case (e.Op == parser.GTR || e.Op == parser.NEQ) && !e.ReturnBool && !measure:
			if n, ok := e.RHS.(*parser.NumberLiteral); ok && n.Val == 0 {
				return growth(e.LHS, true)
			}
		}
	case *parser.Call:
		if !measure || !slices.Contains([]string{"increase", "rate", "irate"}, e.Func.Name) {
			return nil
		}
		if m, ok := e.Args[0].(*parser.MatrixSelector); ok {
			if v, ok := m.VectorSelector.(*parser.VectorSelector); ok && v.Name != "" && !strings.Contains(v.Name, " ") {
				return []string{v.Name}
			}
		}
	}
	return nil
}
