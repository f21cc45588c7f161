package cmdb

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/auspex-dev/auspex/schemas"
)

// Problem is a record of an inventory that cannot be used, and why.
type Problem struct {
	Record string // such as `resource "gpu-r01-03/gpu0"` or `links[7]`
	Reason string
}

// String reads as a sentence without its full stop.
func (p Problem) String() string { return p.Record + ": " + p.Reason }

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

var kinds = []string{
	schemas.KindSite, schemas.KindRow, schemas.KindRack, schemas.KindPDU, schemas.KindCRAC, schemas.KindSwitch, schemas.KindPort,
	schemas.KindServer, schemas.KindBMC, schemas.KindCPU, schemas.KindDIMM, schemas.KindDisk, schemas.KindPSU, schemas.KindFan,
	schemas.KindNIC, schemas.KindNVSwitch, schemas.KindGPU, schemas.KindPCIeSwitch,
}

var linkKinds = []string{schemas.LinkPowers, schemas.LinkCools, schemas.LinkNetwork, schemas.LinkNVLink, schemas.LinkPCIe}

// ReadFile reads an inventory file, plain, gzip or zstd; "-" is standard input.
// The topology holds the good records, the problems name the bad ones. An error
// means that the file as a whole cannot be read.
func ReadFile(path string) (schemas.Topology, []Problem, error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return schemas.Topology{}, nil, fmt.Errorf("read inventory: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	t, problems, err := Read(in)
	if err != nil {
		return t, nil, fmt.Errorf("read inventory %s: %w", path, err)
	}
	return t, problems, nil
}

// Read is [ReadFile] on a stream.
func Read(in io.Reader) (schemas.Topology, []Problem, error) {
	plain, closer, err := unpack(in)
	if err != nil {
		return schemas.Topology{}, nil, err
	}
	defer closer()
	text, err := io.ReadAll(plain)
	if err != nil {
		return schemas.Topology{}, nil, err
	}
	var doc struct {
		Version   int               `json:"version"`
		Resources []json.RawMessage `json:"resources"`
		Links     []json.RawMessage `json:"links"`
		Workloads []json.RawMessage `json:"workloads"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return schemas.Topology{}, nil, atLine(text, err)
	}
	if doc.Version != 0 && doc.Version != 1 {
		return schemas.Topology{}, nil, fmt.Errorf("version %d is not known; this program reads version 1", doc.Version)
	}
	var problems []Problem
	t := schemas.Topology{
		Version:   1,
		Resources: decode[schemas.Resource]("resources", doc.Resources, &problems),
		Links:     decode[schemas.Link]("links", doc.Links, &problems),
		Workloads: decode[schemas.Workload]("workloads", doc.Workloads, &problems),
	}
	t, more := Validate(t)
	return t, append(problems, more...), nil
}

func decode[T any](what string, raw []json.RawMessage, problems *[]Problem) []T {
	out := make([]T, 0, len(raw))
	for i, r := range raw {
		var v T
		if err := json.Unmarshal(r, &v); err != nil {
			*problems = append(*problems, Problem{fmt.Sprintf("%s[%d]", what, i), err.Error()})
			continue
		}
		out = append(out, v)
	}
	return out
}

// unpack looks at the first bytes, not at a name.
func unpack(in io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReader(in)
	head, _ := b.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
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
		return err
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:offset], []byte{'\n'}), err)
}

// Validate keeps the records that fit together and says why the others do not:
// no id, an id twice, an unknown kind, a parent that is not there or is a part
// of its own child, a link that hangs in the air. A record that stands on a bad
// one is bad too. Workloads keep the resources that are known.
func Validate(t schemas.Topology) (schemas.Topology, []Problem) {
	var problems []Problem
	bad := func(record, format string, args ...any) {
		problems = append(problems, Problem{record, fmt.Sprintf(format, args...)})
	}
	out := schemas.Topology{Version: 1}
	index := make(map[string]int, len(t.Resources))
	for i, r := range t.Resources {
		name := fmt.Sprintf("resource %q", r.ID)
		switch {
		case r.ID == "":
			bad(fmt.Sprintf("resources[%d]", i), "it has no id")
		case !slices.Contains(kinds, r.Kind):
			bad(name, "kind %q is not known", r.Kind)
		default:
			if _, dup := index[r.ID]; dup {
				bad(name, "this id is there twice; the first one is kept")
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
			bad(fmt.Sprintf("resource %q", id), "it is a part of itself through its parents")
			state[id] = broken
			return false
		}
		parent := t.Resources[index[id]].Parent
		state[id] = walking
		switch _, known := index[parent]; {
		case parent == "":
			state[id] = good
		case !known:
			bad(fmt.Sprintf("resource %q", id), "parent %q is not there", parent)
			state[id] = broken
		case !stands(parent):
			if state[id] != broken {
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
	type key struct{ from, to, kind string }
	seen := make(map[key]bool, len(t.Links))
	for i, l := range t.Links {
		name := fmt.Sprintf("links[%d] %s from %q to %q", i, l.Kind, l.From, l.To)
		switch {
		case !slices.Contains(linkKinds, l.Kind):
			bad(name, "kind %q is not known", l.Kind)
		case state[l.From] != good:
			bad(name, "resource %q is not there", l.From)
		case state[l.To] != good:
			bad(name, "resource %q is not there", l.To)
		case l.From == l.To:
			bad(name, "it joins a resource with itself")
		case seen[key{l.From, l.To, l.Kind}]:
			bad(name, "this link is there twice; the first one is kept")
		default:
			seen[key{l.From, l.To, l.Kind}] = true
			out.Links = append(out.Links, l)
		}
	}
	jobs := make(map[string]bool, len(t.Workloads))
	for i, w := range t.Workloads {
		name := fmt.Sprintf("workload %q", w.ID)
		switch {
		case w.ID == "":
			bad(fmt.Sprintf("workloads[%d]", i), "it has no id")
			continue
		case jobs[w.ID]:
			bad(name, "this id is there twice; the first one is kept")
			continue
		case !w.End.IsZero() && w.End.Before(w.Start):
			bad(name, "it ends before it starts")
			continue
		}
		jobs[w.ID] = true
		known := make([]string, 0, len(w.Resources))
		for _, r := range w.Resources {
			if state[r] != good {
				bad(name, "resource %q is not there", r)
				continue
			}
			known = append(known, r)
		}
		w.Resources = known
		out.Workloads = append(out.Workloads, w)
	}
	return out, problems
}
