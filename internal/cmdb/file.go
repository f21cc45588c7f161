package cmdb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"auspex/internal/textfile"
	"auspex/schemas"
)

// Problem is a record of an inventory that cannot be used, and why.
type Problem struct {
	Line   int    // of its file, 0 where it is from none
	Record string // such as `resource "gpu-r01-03/gpu0"` or `links[7]`
	Reason string
}

// String reads as a sentence without its full stop.
func (p Problem) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("line %d: %s: %s", p.Line, p.Record, p.Reason)
	}
	return p.Record + ": " + p.Reason
}

// In is [Problem.String] with the file that the record is from.
func (p Problem) In(file string) string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d: %s: %s", textfile.Name(file), p.Line, p.Record, p.Reason)
	}
	return textfile.Name(file) + ": " + p.String()
}

// ErrProblems is returned where an inventory with problems is not accepted.
var ErrProblems = errors.New("inventory has bad records")

// Err joins problems to one error, nil when there are none. It names the first
// ten.
func Err(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	var b strings.Builder
	for i, p := range problems {
		if i == 10 {
			fmt.Fprintf(&b, "; and %d more", len(problems)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.String())
	}
	return fmt.Errorf("%w: %s", ErrProblems, b.String())
}

// kinds are those that Auspex knows something of. Others are kept.
var kinds = []string{
	schemas.KindSite, schemas.KindRow, schemas.KindRack, schemas.KindPDU, schemas.KindCRAC, schemas.KindSwitch, schemas.KindPort,
	schemas.KindServer, schemas.KindBMC, schemas.KindCPU, schemas.KindDIMM, schemas.KindDisk, schemas.KindPSU, schemas.KindFan,
	schemas.KindNIC, schemas.KindNVSwitch, schemas.KindGPU, schemas.KindPCIeSwitch,
}

// misspelt returns the known kind that another one is but for capitals; "" where it
// is none.
func misspelt(kind string) string {
	for _, k := range kinds {
		if k != kind && strings.EqualFold(k, kind) {
			return k
		}
	}
	return ""
}

var linkKinds = []string{schemas.LinkPowers, schemas.LinkCools, schemas.LinkNetwork, schemas.LinkNVLink, schemas.LinkPCIe}

// ReadFile reads an inventory file, plain, gzip or zstd; "-" is stdin. The
// topology holds the good records, the problems name the bad ones. An error means
// that the file as a whole cannot be read.
func ReadFile(path string, stdin io.Reader) (schemas.Topology, []Problem, error) {
	return readFile(path, stdin, Read)
}

// Read is [ReadFile] of a text. An error begins with the number of its line.
func Read(text []byte) (schemas.Topology, []Problem, error) {
	t, at, problems, err := parse(text)
	if err != nil {
		return t, nil, err
	}
	t, more := validate(t, at, nobody)
	return t, append(problems, more...), nil
}

// ReadRecords is [ReadFile] that keeps every record that can be read, for a reader
// that makes the best of links and parents that are not there.
func ReadRecords(path string, stdin io.Reader) (schemas.Topology, []Problem, error) {
	return readFile(path, stdin, func(text []byte) (schemas.Topology, []Problem, error) {
		t, _, problems, err := parse(text)
		return t, problems, err
	})
}

func readFile(path string, stdin io.Reader, read func([]byte) (schemas.Topology, []Problem, error)) (schemas.Topology, []Problem, error) {
	text, err := textfile.ReadFile(path, stdin)
	if err != nil {
		return schemas.Topology{}, nil, fmt.Errorf("read inventory: %w", err)
	}
	t, problems, err := read(text)
	if err != nil {
		return t, nil, fmt.Errorf("read inventory: %s:%w", textfile.Name(path), err)
	}
	return t, problems, nil
}

// Draft is an inventory as its source wrote it: every record that can be read,
// whether it fits the others or not, and why the rest cannot be read.
type Draft struct {
	Topology schemas.Topology
	Problems []Problem
	at       places
}

// ReadDraft is [ReadFile] for [Inventory.Import], which knows what the records may
// hang on.
func ReadDraft(path string, stdin io.Reader) (d Draft, err error) {
	d.Topology, d.Problems, err = readFile(path, stdin, func(text []byte) (t schemas.Topology, problems []Problem, err error) {
		t, d.at, problems, err = parse(text)
		return t, problems, err
	})
	return d, err
}

// counts returns how many resources, links and workloads the draft has, those that
// cannot be read among them.
func (d Draft) counts() [3]int {
	n := [3]int{len(d.Topology.Resources), len(d.Topology.Links), len(d.Topology.Workloads)}
	for _, p := range d.Problems {
		for i, what := range []string{"resources[", "links[", "workloads["} {
			if strings.HasPrefix(p.Record, what) {
				n[i]++
			}
		}
	}
	return n
}

func (d Draft) records() int {
	n := d.counts()
	return n[0] + n[1] + n[2]
}

// places are the lines on which the records of a file begin.
type places struct{ resources, links, workloads []int }

func line(l []int, i int) int {
	if i < len(l) {
		return l[i]
	}
	return 0
}

// parse reads the records that can be read. An error begins with its line.
func parse(text []byte) (t schemas.Topology, at places, problems []Problem, err error) {
	var doc struct {
		Version   int             `json:"version"`
		Resources json.RawMessage `json:"resources"`
		Links     json.RawMessage `json:"links"`
		Workloads json.RawMessage `json:"workloads"`
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return t, at, nil, errors.New("1: the file is empty")
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return t, at, nil, atLine(text, err)
	}
	if doc.Version != 0 && doc.Version != 1 {
		return t, at, nil, fmt.Errorf("1: unknown version %d; this program reads version 1", doc.Version)
	}
	t.Version = 1
	var links []Problem
	var linksErr error
	read := make(chan struct{})
	go func() { // beside the resources, of which there are about as many
		defer close(read)
		t.Links, at.links, linksErr = decode[schemas.Link](text, "links", doc.Links, &links)
	}()
	t.Resources, at.resources, err = decode[schemas.Resource](text, "resources", doc.Resources, &problems)
	<-read
	if err := cmp.Or(err, linksErr); err != nil {
		return t, at, nil, err
	}
	problems = append(problems, links...)
	t.Workloads, at.workloads, err = decode[schemas.Workload](text, "workloads", doc.Workloads, &problems)
	return t, at, problems, err
}

// decode reads the elements of an array, which is a part of the text.
func decode[T any](text []byte, what string, array json.RawMessage, problems *[]Problem) (out []T, lines []int, err error) {
	if len(array) == 0 || string(array) == "null" {
		return nil, nil, nil
	}
	before, _, _ := bytes.Cut(text, array)
	n := 1 + bytes.Count(before, []byte{'\n'})
	if array[0] != '[' {
		return nil, nil, fmt.Errorf("%d: %s is not an array", n, what)
	}
	dec := json.NewDecoder(bytes.NewReader(array))
	_, _ = dec.Token() // that the text is JSON was seen before
	seen := int64(0)
	for i := 0; dec.More(); i++ {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, nil, fmt.Errorf("%d: %s[%d]: %w", n, what, i, err)
		}
		begin := dec.InputOffset() - int64(len(raw))
		n += bytes.Count(array[seen:begin], []byte{'\n'})
		seen = begin
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			*problems = append(*problems, Problem{n, fmt.Sprintf("%s[%d]", what, i), textfile.Reason(err)})
			continue
		}
		out, lines = append(out, v), append(lines, n)
	}
	return out, lines, nil
}

func atLine(text []byte, err error) error {
	offset := int64(-1)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	if offset < 0 || offset > int64(len(text)) {
		return fmt.Errorf("1: %s", textfile.Reason(err))
	}
	return fmt.Errorf("%d: %s", 1+bytes.Count(text[:offset], []byte{'\n'}), textfile.Reason(err))
}

// Validate keeps the records that fit together and says why the others do not:
// no id or kind, an id twice, a parent that is not there or is a part
// of its own child, a link that hangs in the air. A record that stands on a bad
// one is bad too. Workloads keep the resources that are known.
func Validate(t schemas.Topology) (schemas.Topology, []Problem) {
	return validate(t, places{}, nobody)
}

// validate is [Validate] for records that may also hang on known ones.
func validate(t schemas.Topology, at places, others func(id string) bool) (schemas.Topology, []Problem) {
	var problems []Problem
	n := 0 // line of the record that is looked at
	bad := func(record, format string, args ...any) {
		problems = append(problems, Problem{n, record, fmt.Sprintf(format, args...)})
	}
	out := schemas.Topology{Version: 1}
	index := make(map[string]int, len(t.Resources))
	for i, r := range t.Resources {
		n = line(at.resources, i)
		name := func() string { return fmt.Sprintf("resource %q", r.ID) }
		switch {
		case r.ID == "":
			bad(fmt.Sprintf("resources[%d]", i), "id is missing")
		case r.Kind == "":
			bad(name(), "kind is missing")
		case misspelt(r.Kind) != "":
			bad(name(), "kind %q is spelt %q", r.Kind, misspelt(r.Kind))
		default:
			if _, dup := index[r.ID]; dup {
				bad(name(), "duplicate id; the first record is kept")
				continue
			}
			index[r.ID] = i
		}
	}
	// A resource stands when its chain of parents ends at one without a parent.
	const (
		unseen = iota
		walking
		good
		broken
	)
	state := make(map[string]int8, len(index))
	var stands func(id string) bool
	stands = func(id string) bool {
		switch state[id] {
		case good:
			return true
		case broken:
			return false
		case walking:
			n = line(at.resources, index[id])
			bad(fmt.Sprintf("resource %q", id), "its parents form a loop")
			state[id] = broken
			return false
		}
		parent := t.Resources[index[id]].Parent
		state[id] = walking
		switch _, known := index[parent]; {
		case parent == "", !known && others(parent):
			state[id] = good
		case !known:
			n = line(at.resources, index[id])
			bad(fmt.Sprintf("resource %q", id), "parent %q does not exist", parent)
			state[id] = broken
		case !stands(parent):
			if state[id] != broken {
				n = line(at.resources, index[id])
				bad(fmt.Sprintf("resource %q", id), "parent %q is a bad record", parent)
			}
			state[id] = broken
		default:
			state[id] = good
		}
		return state[id] == good
	}
	for i, r := range t.Resources {
		if at, ok := index[r.ID]; ok && at == i && stands(r.ID) {
			out.Resources = append(out.Resources, r)
		}
	}
	there := func(id string) bool { // a bad record of this file does not hide the good one of another
		return state[id] == good || others(id)
	}
	type key struct{ from, to, kind string }
	seen := make(map[key]bool, len(t.Links))
	for i, l := range t.Links {
		n = line(at.links, i)
		name := func() string { return fmt.Sprintf("links[%d] %s from %q to %q", i, l.Kind, l.From, l.To) }
		switch {
		case !slices.Contains(linkKinds, l.Kind):
			bad(name(), "unknown kind %q", l.Kind)
		case !there(l.From):
			bad(name(), "resource %q does not exist", l.From)
		case !there(l.To):
			bad(name(), "resource %q does not exist", l.To)
		case l.From == l.To:
			bad(name(), "it links a resource to itself")
		case seen[key{l.From, l.To, l.Kind}]:
			bad(name(), "duplicate link; the first record is kept")
		default:
			seen[key{l.From, l.To, l.Kind}] = true
			out.Links = append(out.Links, l)
		}
	}
	jobs := make(map[string]bool, len(t.Workloads))
	for i, w := range t.Workloads {
		n = line(at.workloads, i)
		name := fmt.Sprintf("workload %q", w.ID)
		switch {
		case w.ID == "":
			bad(fmt.Sprintf("workloads[%d]", i), "id is missing")
			continue
		case jobs[w.ID]:
			bad(name, "duplicate id; the first record is kept")
			continue
		case !w.End.IsZero() && w.End.Before(w.Start):
			bad(name, "it ends before it starts")
			continue
		}
		jobs[w.ID] = true
		known := make([]string, 0, len(w.Resources))
		for _, r := range w.Resources {
			if !there(r) {
				bad(name, "resource %q does not exist", r)
				continue
			}
			known = append(known, r)
		}
		w.Resources = known
		out.Workloads = append(out.Workloads, w)
	}
	return out, problems
}

func nobody(string) bool { return false }
