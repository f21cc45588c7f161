package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/Masterminds/sprig/v3"

	"auspex/internal/nearest"
)

const (
	hardwareKey = "Hardware" // of tink: the hardware that a workflow is for
	deviceKey   = "device_1" // of tink's examples: the address of its worker

	// MaxText bounds the text of a template, and what it is rendered to, in bytes.
	MaxText = 256 << 10

	maxSteps = 20_000          // of a rendering
	maxTime  = 2 * time.Second // of a rendering
	maxList  = 10_000          // items of a value
	maxWidth = 200             // of an indentation
)

// allowed are the functions of sprig that a template may use, of those that tink v0.12.2 gives it
// (internal/deprecated/workflow). Left out is what tells of the machine that renders or of the
// moment (env, getHostByName, now, randAlpha), what makes keys, and what builds values of values,
// by which a short template could fill the memory.
var allowed = []string{
	"b64dec", "b64enc", "cat", "coalesce", "contains", "default", "empty", "fail", "first", "has", "hasKey", "hasPrefix", "hasSuffix", "indent", "initial",
	"int", "int64", "join", "keys", "last", "lower", "max", "min", "add", "sub", "mul", "div", "mod", "nindent", "quote", "replace", "rest", "sha256sum",
	"sortAlpha", "splitList", "squote", "substr", "ternary", "toJson", "toPrettyJson", "toString", "trim", "trimAll", "trimPrefix", "trimSuffix", "trunc",
	"uniq", "upper", "values",
}

// errLarge is of a template that makes too much of what it was given.
var errLarge = fmt.Errorf("what it makes is larger than %d bytes or %d items", MaxText, maxList)

// functions are those of a template, each bounded in what it takes and returns.
var functions = func() template.FuncMap {
	all := sprig.TxtFuncMap()
	out := template.FuncMap{
		"formatPartition": formatPartition, "print": fmt.Sprint, "println": fmt.Sprintln, "printf": printf, "html": template.HTMLEscaper,
		"js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	}
	for _, name := range allowed {
		out[name] = all[name]
	}
	out["indent"] = func(n int, s string) (string, error) { return indent(n, s, "") }
	out["nindent"] = func(n int, s string) (string, error) { return indent(n, s, "\n") }
	out["replace"] = func(old, with, s string) (string, error) {
		if strings.Count(s, old)*len(with) > MaxText {
			return "", errLarge
		}
		return strings.ReplaceAll(s, old, with), nil
	}
	for name, f := range out {
		out[name] = bounded(f)
	}
	return out
}()

// formatPartition is tink's: the name of a partition of a disk.
func formatPartition(dev string, partition int) string {
	switch {
	case strings.HasPrefix(dev, "/dev/nvme"):
		return fmt.Sprintf("%vp%v", dev, partition)
	case strings.HasPrefix(dev, "/dev/sd"), strings.HasPrefix(dev, "/dev/vd"), strings.HasPrefix(dev, "/dev/xvd"), strings.HasPrefix(dev, "/dev/hd"):
		return fmt.Sprintf("%v%v", dev, partition)
	}
	return dev
}

// wide are the verbs of a format by which little becomes much.
var wide = regexp.MustCompile(`%[^%a-zA-Z]*([0-9]{4}|\*|\[)`)

func printf(format string, args ...any) (string, error) {
	if wide.MatchString(format) {
		return "", errors.New("the format has a width of 1000 or more, or one that is an argument")
	}
	return fmt.Sprintf(format, args...), nil
}

func indent(n int, s, before string) (string, error) {
	if n < 0 || n > maxWidth {
		return "", fmt.Errorf("an indentation of %d is not within 0 to %d", n, maxWidth)
	}
	if len(s)+n*(strings.Count(s, "\n")+1) > MaxText {
		return "", errLarge
	}
	pad := strings.Repeat(" ", n)
	return before + pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

// size is how much text a value holds.
func size(v reflect.Value, depth int) (n int) {
	if depth > 2*maxDepth {
		return 0
	}
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Slice, reflect.Array:
		if v.Len() > maxList {
			return MaxText + 1
		}
		for i := range v.Len() {
			n += size(v.Index(i), depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			n += size(it.Key(), depth+1) + size(it.Value(), depth+1)
		}
	}
	return n
}

// bounded is a function that refuses to take or return more than a workflow holds. It panics as
// text/template lets functions do, which makes an error of it.
func bounded(f any) any {
	fn := reflect.ValueOf(f)
	check := func(values []reflect.Value) {
		n := 0
		for _, v := range values {
			n += size(v, 0)
		}
		if n > MaxText {
			panic(errLarge)
		}
	}
	return reflect.MakeFunc(fn.Type(), func(args []reflect.Value) []reflect.Value {
		check(args)
		var out []reflect.Value
		if fn.Type().IsVariadic() {
			out = fn.CallSlice(args)
		} else {
			out = fn.Call(args)
		}
		check(out)
		return out
	}).Interface()
}

// line is that of an offset in a text, from 1.
func line(text string, at int) int {
	return strings.Count(text[:min(max(at, 0), len(text))], "\n") + 1
}

// templateError is an error of text/template: its line, and what it says.
var templateError = regexp.MustCompile(`(?s)^template: [^:]*:(\d+)(?::\d+)?: (?:executing "[^"]*" )?(.*)$`)

func faultOf(err error) Fault {
	f := Fault{Field: "text", Detail: strings.TrimPrefix(err.Error(), "template: ")}
	if m := templateError.FindStringSubmatch(err.Error()); m != nil {
		f.Line, _ = strconv.Atoi(m[1])
		f.Detail = m[2]
	}
	if undefined := notDefined.FindStringSubmatch(f.Detail); undefined != nil {
		f.Detail = undefined[1] + " is no function that a template may use"
		if like := nearest.Words(undefined[1], maps.Keys(functions), 1); len(like) > 0 {
			f.Detail += "; there is " + like[0]
		}
	}
	if _, own, failed := strings.Cut(f.Detail, ": error calling fail: "); failed { // the words of whoever wrote the template
		f.Detail = own
		if m := ofParameter.FindStringSubmatch(own); m != nil {
			f = Fault{Field: m[1], Detail: m[2]}
		}
	}
	f.Detail = strings.TrimSuffix(f.Detail, ".")
	return f
}

// ofParameter is what a template fails with where a parameter is to blame, and not the text.
var ofParameter = regexp.MustCompile(`^(parameters\.[A-Za-z0-9_]+): (.+)$`)

var notDefined = regexp.MustCompile(`^function "([^"]+)" not defined$`)

// form is a template that was read.
type form struct {
	text string
	tree *template.Template
}

// read reads a template. What it asks for has to be a parameter or the hardware's.
func read(text string, p *parameters) (*form, Faults) {
	if len(text) > MaxText {
		return nil, Faults{{Field: "text", Detail: fmt.Sprintf("is more than %d bytes", MaxText)}}
	}
	t, err := template.New("workflow").Option("missingkey=error").Funcs(functions).Funcs(template.FuncMap{markName: func(int) string { return "" }}).Parse(text)
	if err != nil {
		return nil, Faults{faultOf(err)}
	}
	if t.Tree == nil {
		return nil, Faults{{Field: "text", Detail: "is empty"}}
	}
	f := &form{text, t}
	if p == nil {
		return f, nil
	}
	a := asks{form: f, known: p, seen: map[string]bool{}}
	a.list(t.Tree.Root, true)
	return f, a.faults
}

// asks looks for what a template asks for and nobody gives.
type asks struct {
	*form
	known  *parameters
	seen   map[string]bool // templates within that were looked through
	faults Faults
}

// list goes through nodes; root says that the dot is still what the template was given.
func (a *asks) list(l *parse.ListNode, root bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			a.pipe(n.Pipe, root)
		case *parse.IfNode:
			a.branch(&n.BranchNode, root, root)
		case *parse.WithNode:
			a.branch(&n.BranchNode, root, false)
		case *parse.RangeNode:
			a.branch(&n.BranchNode, root, false)
		case *parse.TemplateNode:
			a.pipe(n.Pipe, root)
			within := a.tree.Lookup(n.Name)
			if whole(n.Pipe) && root && within != nil && within.Tree != nil && !a.seen[n.Name] {
				a.seen[n.Name] = true
				a.list(within.Root, true)
			}
		}
	}
}

func (a *asks) branch(b *parse.BranchNode, root, within bool) {
	a.pipe(b.Pipe, root)
	a.list(b.List, within)
	a.list(b.ElseList, root)
}

// whole reports whether a pipe is the dot, or $.
func whole(p *parse.PipeNode) bool {
	if p == nil || len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 {
		return false
	}
	text := p.Cmds[0].Args[0].String()
	return text == "." || text == "$"
}

func (a *asks) pipe(p *parse.PipeNode, root bool) {
	if p == nil {
		return
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			a.node(arg, root)
		}
	}
}

func (a *asks) node(n parse.Node, root bool) {
	switch n := n.(type) {
	case *parse.FieldNode:
		if root {
			a.ask(n, n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 { // what the template was given, wherever the dot is
			a.ask(n, n.Ident[1:])
		}
	case *parse.ChainNode:
		a.node(n.Node, root)
	case *parse.PipeNode:
		a.pipe(n, root)
	}
}

// ask holds a path of names against parameters and hardware.
func (a *asks) ask(n parse.Node, path []string) {
	say := func(detail string, args ...any) {
		a.faults = append(a.faults, Fault{Field: "text", Line: line(a.text, int(n.Position())), Detail: fmt.Sprintf(detail, args...)})
	}
	switch path[0] {
	case deviceKey:
		return
	case hardwareKey:
		at := reflect.TypeFor[hardwareData]()
		for i, name := range path[1:] {
			for at.Kind() == reflect.Pointer {
				at = at.Elem()
			}
			if at.Kind() != reflect.Struct {
				return
			}
			field, ok := at.FieldByName(name)
			if !ok {
				var names []string
				for field := range at.Fields() {
					names = append(names, field.Name)
				}
				say(".%s is nothing that the hardware has; it has %s", strings.Join(path[:i+2], "."), strings.Join(names, ", "))
				return
			}
			at = field.Type
		}
	default:
		if a.known.properties[path[0]] != nil {
			return
		}
		hint := ""
		if like := nearest.Words(path[0], slices.Values(append(slices.Collect(maps.Keys(a.known.properties)), hardwareKey, deviceKey)), 1); len(like) > 0 {
			hint = "; there is ." + like[0]
		}
		say(".%s is neither a parameter nor the hardware's%s", path[0], hint)
	}
}

// markName is a function that a template cannot name, since it is no identifier of a person's.
const markName = "auspexMark"

// track is the output of a rendering, and from where in the template each part of it comes.
type track struct {
	strings.Builder
	text  string
	until time.Time
	steps int
	marks []mark
}

// mark says that what follows in the output is of an offset of the template. Of text each byte
// is of one; what an action prints is all of its line.
type mark struct {
	out, in int
	text    bool
}

// Write implements io.Writer.
func (t *track) Write(b []byte) (int, error) {
	if t.Len()+len(b) > MaxText {
		return 0, errLarge
	}
	return t.Builder.Write(b)
}

// line is the line of the template that a line of the output comes from.
func (t *track) line(n int) int {
	if n <= 0 {
		return 0
	}
	at, out := 0, t.String()
	for range n - 1 {
		next := strings.IndexByte(out[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	at += len(out[at:]) - len(strings.TrimLeft(out[at:], " "))
	k, found := slices.BinarySearchFunc(t.marks, at, func(m mark, at int) int {
		if m.out <= at {
			return -1
		}
		return 1
	})
	if found || k == 0 {
		return line(t.text, 0)
	}
	m := t.marks[k-1]
	if m.text {
		return line(t.text, m.in+at-m.out)
	}
	return line(t.text, m.in)
}

var errSteps = fmt.Errorf("it takes more than %d steps or %s", maxSteps, maxTime)

// marked puts a mark before each node of a list, and one into an empty one, so that every turn of
// a loop is counted.
func marked(l *parse.ListNode, at func(n parse.Node, text bool) (parse.Node, error)) error {
	if l == nil {
		return nil
	}
	out := make([]parse.Node, 0, 2*len(l.Nodes)+1)
	put := func(n parse.Node, text bool) error {
		m, err := at(n, text)
		out = append(out, m)
		return err
	}
	if len(l.Nodes) == 0 {
		if err := put(l, false); err != nil {
			return err
		}
	}
	for _, n := range l.Nodes {
		_, text := n.(*parse.TextNode)
		if err := put(n, text); err != nil {
			return err
		}
		out = append(out, n)
		var b *parse.BranchNode
		switch n := n.(type) {
		case *parse.IfNode:
			b = &n.BranchNode
		case *parse.WithNode:
			b = &n.BranchNode
		case *parse.RangeNode:
			b = &n.BranchNode
		default:
			continue
		}
		if err := errors.Join(marked(b.List, at), marked(b.ElseList, at)); err != nil {
			return err
		}
	}
	l.Nodes = out
	return nil
}

// run renders a template, within bounds.
func run(ctx context.Context, text string, data map[string]any) (*track, Faults) {
	f, faults := read(text, nil)
	if len(faults) > 0 {
		return nil, faults
	}
	t := &track{text: text, until: time.Now().Add(maxTime)}
	var places []mark
	f.tree.Funcs(template.FuncMap{markName: func(n int) (string, error) {
		t.steps++
		if t.steps > maxSteps || t.steps%64 == 0 && (time.Now().After(t.until) || ctx.Err() != nil) {
			return "", errSteps
		}
		m := places[n]
		m.out = t.Len()
		t.marks = append(t.marks, m)
		return "", nil
	}})
	names := map[string]any{markName: func(int) string { return "" }}
	at := func(n parse.Node, text bool) (parse.Node, error) {
		trees, err := parse.Parse("mark", "{{"+markName+" "+strconv.Itoa(len(places))+"}}", "", "", names)
		if err != nil {
			return nil, err
		}
		places = append(places, mark{in: int(n.Position()), text: text})
		return trees["mark"].Root.Nodes[0], nil
	}
	for _, within := range f.tree.Templates() {
		if within.Tree == nil {
			continue
		}
		if err := marked(within.Root, at); err != nil {
			return nil, Faults{faultOf(err)}
		}
	}
	if err := f.tree.Execute(t, data); err != nil {
		fault := faultOf(err)
		if own := errors.Is(err, errSteps); (own || fault.Field == "text" && fault.Line == 0) && len(t.marks) > 0 {
			fault.Line = line(text, t.marks[len(t.marks)-1].in)
			if own {
				fault.Detail = errSteps.Error()
			}
		}
		return nil, Faults{fault}
	}
	return t, nil
}
