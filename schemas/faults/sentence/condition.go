package sentence

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

const (
	maxCondition = 300 // characters of a condition
	maxDepth     = 16  // of parentheses and negations
)

// Condition says whether a sentence is said. Its grammar, where a name
// alone must be true or false:
//
//	or   = and {"or" and}
//	and  = not {"and" not}
//	not  = "not" not | "(" or ")" | value [("=="|"!="|"<"|"<="|">"|">=") value]
//	value = number | "text" | name | "true" | "false"
type Condition struct {
	op   string // or, and, not, a comparison, name, value
	args []Condition
	name string
	v    any
	typ  Type
}

// ParseCondition reads a condition; "" always holds.
func ParseCondition(s string, scope Scope) (*Condition, error) {
	if len(s) > maxCondition {
		return nil, fmt.Errorf("longer than %d bytes", maxCondition)
	}
	if strings.TrimSpace(s) == "" {
		return &Condition{op: "value", v: true, typ: Truth}, nil
	}
	tokens, err := tokenize(s)
	if err != nil {
		return nil, err
	}
	p := parser{tokens: tokens, scope: scope}
	c, err := p.or(0)
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("%q is not expected here", p.peek())
	}
	if err == nil && c.typ != Truth {
		err = fmt.Errorf("%q is not true or false", s)
	}
	if err != nil {
		return nil, err
	}
	return &c, nil
}

// Holds evaluates the condition.
func (c *Condition) Holds(v View) bool {
	b, _ := c.value(v).(bool)
	return b
}

func (c *Condition) value(v View) any {
	switch c.op {
	case "value":
		return c.v
	case "name":
		x := v(c.name)
		if n, ok := number(x); ok {
			return n
		}
		return x
	case "not":
		return !c.args[0].Holds(v)
	case "or":
		return c.args[0].Holds(v) || c.args[1].Holds(v)
	case "and":
		return c.args[0].Holds(v) && c.args[1].Holds(v)
	}
	a, b := c.args[0].value(v), c.args[1].value(v)
	switch c.op {
	case "==":
		return a == b
	case "!=":
		return a != b
	}
	x, _ := number(a)
	y, _ := number(b)
	switch c.op {
	case "<":
		return x < y
	case "<=":
		return x <= y
	case ">":
		return x > y
	}
	return x >= y
}

func tokenize(s string) ([]string, error) {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		n := 0
		switch c := rune(s[0]); {
		case c == '(' || c == ')':
			n = 1
		case strings.ContainsRune("=!<>", c):
			n = 1
			if len(s) > 1 && s[1] == '=' {
				n = 2
			}
		case c == '"':
			end := strings.IndexByte(s[1:], '"')
			if end < 0 {
				return nil, fmt.Errorf("%s: the quotation does not end", s)
			}
			n = end + 2
		case word(c):
			for n < len(s) && word(rune(s[n])) {
				n++
			}
		default:
			return nil, fmt.Errorf("%q is not expected here", string([]rune(s)[0]))
		}
		out, s = append(out, s[:n]), s[n:]
	}
	return out, nil
}

func word(c rune) bool {
	return c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' || c == '.')
}

type parser struct {
	tokens []string
	scope  Scope
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) take() string {
	t := p.peek()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) or(depth int) (Condition, error) { return p.chain("or", depth, p.and) }

func (p *parser) and(depth int) (Condition, error) { return p.chain("and", depth, p.not) }

func (p *parser) chain(op string, depth int, next func(int) (Condition, error)) (Condition, error) {
	left, err := next(depth)
	for err == nil && p.peek() == op {
		p.take()
		var right Condition
		if right, err = next(depth); err == nil {
			if left.typ != Truth || right.typ != Truth {
				err = fmt.Errorf("%q stands between what is true or false", op)
			}
			left = Condition{op: op, args: []Condition{left, right}, typ: Truth}
		}
	}
	return left, err
}

func (p *parser) not(depth int) (Condition, error) {
	if depth > maxDepth {
		return Condition{}, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch p.peek() {
	case "not":
		p.take()
		c, err := p.not(depth + 1)
		if err == nil && c.typ != Truth {
			err = errors.New(`"not" stands before what is true or false`)
		}
		return Condition{op: "not", args: []Condition{c}, typ: Truth}, err
	case "(":
		p.take()
		c, err := p.or(depth + 1)
		if err == nil && p.take() != ")" {
			err = errors.New("a parenthesis does not close")
		}
		return c, err
	}
	a, err := p.operand()
	if err != nil {
		return a, err
	}
	op := p.peek()
	switch op {
	case "==", "!=", "<", "<=", ">", ">=":
	default:
		return a, nil
	}
	p.take()
	b, err := p.operand()
	switch {
	case err != nil:
		return b, err
	case a.typ != b.typ || a.typ == Name || a.typ == Phrase:
		return b, fmt.Errorf("what stands beside %q cannot be compared", op)
	case a.typ != Number && op != "==" && op != "!=":
		return b, fmt.Errorf("%q compares numbers", op)
	}
	return Condition{op: op, args: []Condition{a, b}, typ: Truth}, nil
}

func (p *parser) operand() (Condition, error) {
	t := p.take()
	switch {
	case t == "":
		return Condition{}, errors.New("the condition ends too early")
	case t == "true" || t == "false":
		return Condition{op: "value", v: t == "true", typ: Truth}, nil
	case t[0] == '"':
		return Condition{op: "value", v: t[1 : len(t)-1], typ: Words}, nil
	case t[0] >= '0' && t[0] <= '9':
		n, err := strconv.ParseFloat(t, 64)
		if err != nil {
			return Condition{}, fmt.Errorf("%q is no number", t)
		}
		return Condition{op: "value", v: n, typ: Number}, nil
	case !word(rune(t[0])) || t == "and" || t == "or" || t == "not":
		return Condition{}, fmt.Errorf("%q is not expected here", t)
	}
	typ, ok := p.scope(t)
	if !ok {
		return Condition{}, fmt.Errorf("no fact %q here", t)
	}
	return Condition{op: "name", name: t, typ: typ}, nil
}
