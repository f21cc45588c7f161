package prometheus

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Bounds of the text of a query. Parsing costs the square of the depth, and
// evaluating recurses by it.
const (
	maxDepth     = 100
	maxOperators = 1000
	maxNodes     = 10_000
	maxSelectors = 64 // match[] of one request
	// subqueryStep is the step of a subquery that names none.
	subqueryStep = time.Minute
)

// errLimit is a request that asks for more than it may.
type errLimit struct{ text string }

func (e errLimit) Error() string { return e.text }

func overf(format string, args ...any) error { return errLimit{fmt.Sprintf(format, args...)} }

// boundedParser refuses texts that would cost too much to parse.
type boundedParser struct {
	parser.Parser
	maxLength int
}

// ParseExpr implements parser.Parser.
func (p boundedParser) ParseExpr(text string) (parser.Expr, error) {
	if err := p.check(text); err != nil {
		return nil, err
	}
	e, err := p.Parser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	nodes := 0
	if err := shape(e, 1, &nodes); err != nil {
		return nil, err
	}
	_, _, err = growth(e)
	return e, err
}

// ParseMetricSelector implements parser.Parser.
func (p boundedParser) ParseMetricSelector(text string) ([]*labels.Matcher, error) {
	if err := p.check(text); err != nil {
		return nil, err
	}
	return p.Parser.ParseMetricSelector(text)
}

// ParseMetricSelectors implements parser.Parser.
func (p boundedParser) ParseMetricSelectors(texts []string) ([][]*labels.Matcher, error) {
	if len(texts) > maxSelectors {
		return nil, overf("%d selectors are asked for; at most %d are taken", len(texts), maxSelectors)
	}
	var sets [][]*labels.Matcher
	for _, text := range texts {
		set, err := p.ParseMetricSelector(text)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// check bounds a text before it is parsed: its length, how deep its brackets
// nest, how many signs stand in a row, and how many operators it has.
func (p boundedParser) check(text string) error {
	if len(text) > p.maxLength {
		return overf("the query has %d bytes; at most %d are taken", len(text), p.maxLength)
	}
	depth, signs, operators := 0, 0, 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"' || c == '\'' || c == '`':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c != '`' {
					i++
				}
			}
			signs = 0
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case strings.IndexByte("+-*/%^=<>!", c) >= 0:
			signs++
			operators++
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		default:
			from := i
			for i+1 < len(text) && wordByte(text[i+1]) {
				i++
			}
			switch signs = 0; strings.ToLower(text[from : i+1]) {
			case "and", "or", "unless", "atan2", "offset", "bool", "on", "ignoring", "group_left", "group_right", "by", "without":
				operators++
			}
		}
		if depth+signs > maxDepth {
			return overf("the query nests deeper than %d", maxDepth)
		}
		if operators > maxOperators {
			return overf("the query has more than %d operators", maxOperators)
		}
	}
	return nil
}

func wordByte(c byte) bool {
	return c == '_' || c == ':' || c == '.' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// shape bounds what was parsed: operators without brackets nest too.
func shape(n parser.Node, depth int, nodes *int) error {
	if *nodes++; *nodes > maxNodes {
		return overf("the query has more than %d parts", maxNodes)
	}
	if depth > maxDepth*2 {
		return overf("the query nests deeper than %d", maxDepth)
	}
	for child := range parser.ChildrenIter(n) {
		if err := shape(child, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

// span is the times that an expression is evaluated at: so many, over so long.
type span struct {
	steps float64
	wide  time.Duration
}

// windows returns how many points the subqueries of an expression look at for
// each series, or an error where one evaluates at more than maxPoints times.
func windows(n parser.Node, at span) (float64, error) {
	own := 0.0
	switch e := n.(type) {
	case *parser.StepInvariantExpr:
		at = span{1, 0}
	case *parser.SubqueryExpr:
		step := e.Step
		if step <= 0 {
			step = subqueryStep
		}
		within := at.wide + e.Range
		inner := span{float64(within)/float64(step) + 1, within}
		if inner.steps > maxPoints+1 {
			return 0, overf(
				"a subquery would be evaluated at %.0f times for each series; at most %d are taken: make its step longer or its range shorter",
				inner.steps, maxPoints,
			)
		}
		own = at.steps * float64(e.Range) / float64(step)
		at = inner
	}
	for child := range parser.ChildrenIter(n) {
		below, err := windows(child, at)
		if err != nil {
			return 0, err
		}
		own += below
	}
	return own, nil
}

// Bounds of what label_replace and label_join may make of the labels of one
// series, in bytes: nested, they multiply what they copy.
const (
	maxLabelGrowth = 4096
	usualLabel     = 64 // of a label of ours; they are shorter
)

// growth returns how many bytes the labels of a series of an expression may grow
// by, and how long one may be; or an error where that is too much.
func growth(n parser.Node) (bytes, longest int, err error) {
	longest = usualLabel
	for child := range parser.ChildrenIter(n) {
		b, l, err := growth(child)
		if err != nil {
			return 0, 0, err
		}
		bytes, longest = max(bytes, b), max(longest, l)
	}
	call, ok := n.(*parser.Call)
	if !ok {
		return bytes, longest, nil
	}
	made := 0
	switch text := func(i int) string { return literal(call.Args, i) }; call.Func.Name {
	case "label_replace": // (vector, dst, replacement, src, regex)
		made = len(text(2)) + strings.Count(text(2), "$")*longest
	case "label_join": // (vector, dst, separator, src, ...)
		made = max(0, len(call.Args)-3) * (longest + len(text(2)))
	}
	if bytes, longest = bytes+made, max(longest, made); bytes > maxLabelGrowth {
		return 0, 0, overf("labels may grow by %d bytes a series; at most %d are taken: nest label_replace and label_join less", bytes, maxLabelGrowth)
	}
	return bytes, longest, nil
}

func literal(args parser.Expressions, i int) string {
	if i < len(args) {
		if s, ok := unwrap(args[i]).(*parser.StringLiteral); ok {
			return s.Val
		}
	}
	return ""
}

func unwrap(e parser.Expr) parser.Expr {
	for {
		p, ok := e.(*parser.ParenExpr)
		if !ok {
			return e
		}
		e = p.Expr
	}
}
