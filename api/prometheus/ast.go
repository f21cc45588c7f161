package prometheus

import (
	"fmt"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// tree is a parsed query as the route parse_query answers it: objects with a
// type, and the fields that Prometheus documents for it.
func tree(e parser.Expr) any {
	switch n := e.(type) {
	case nil:
		return nil
	case *parser.NumberLiteral:
		return map[string]any{"type": "numberLiteral", "val": strconv.FormatFloat(n.Val, 'f', -1, 64)}
	case *parser.StringLiteral:
		return map[string]any{"type": "stringLiteral", "val": n.Val}
	case *parser.ParenExpr:
		return map[string]any{"type": "parenExpr", "expr": tree(n.Expr)}
	case *parser.UnaryExpr:
		return map[string]any{"type": "unaryExpr", "op": n.Op.String(), "expr": tree(n.Expr)}
	case *parser.StepInvariantExpr:
		return tree(n.Expr)
	case *parser.AggregateExpr:
		return map[string]any{
			"type": "aggregation", "op": n.Op.String(), "expr": tree(n.Expr), "param": tree(n.Param), "grouping": list(n.Grouping),
			"without": n.Without,
		}
	case *parser.Call:
		args := []any{}
		for _, a := range n.Args {
			args = append(args, tree(a))
		}
		f := map[string]any{"name": n.Func.Name, "argTypes": n.Func.ArgTypes, "variadic": n.Func.Variadic, "returnType": n.Func.ReturnType}
		return map[string]any{"type": "call", "func": f, "args": args}
	case *parser.BinaryExpr:
		return map[string]any{
			"type": "binaryExpr", "op": n.Op.String(), "lhs": tree(n.LHS), "rhs": tree(n.RHS), "matching": matching(n.VectorMatching),
			"bool": n.ReturnBool,
		}
	case *parser.VectorSelector:
		return selector("vectorSelector", n)
	case *parser.MatrixSelector:
		v, ok := n.VectorSelector.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m := selector("matrixSelector", v)
		m["range"] = n.Range.Milliseconds()
		return m
	case *parser.SubqueryExpr:
		return map[string]any{
			"type": "subquery", "expr": tree(n.Expr), "range": n.Range.Milliseconds(), "step": n.Step.Milliseconds(),
			"offset": n.OriginalOffset.Milliseconds(), "timestamp": n.Timestamp, "startOrEnd": edge(n.StartOrEnd),
		}
	}
	return map[string]any{"type": fmt.Sprintf("%T", e)}
}

func selector(kind string, v *parser.VectorSelector) map[string]any {
	return map[string]any{
		"type": kind, "name": v.Name, "matchers": matchersOf(v.LabelMatchers), "offset": v.OriginalOffset.Milliseconds(),
		"timestamp": v.Timestamp, "startOrEnd": edge(v.StartOrEnd), "anchored": v.Anchored, "smoothed": v.Smoothed,
	}
}

func matchersOf(in []*labels.Matcher) []map[string]string {
	out := []map[string]string{}
	for _, m := range in {
		out = append(out, map[string]string{"name": m.Name, "type": m.Type.String(), "value": m.Value})
	}
	return out
}

func matching(m *parser.VectorMatching) any {
	if m == nil {
		return nil
	}
	return map[string]any{"card": m.Card.String(), "labels": list(m.MatchingLabels), "on": m.On, "include": list(m.Include)}
}

func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// edge is the word of `@ start()` and `@ end()`.
func edge(t parser.ItemType) any {
	switch t {
	case parser.START:
		return "start"
	case parser.END:
		return "end"
	}
	return nil
}
