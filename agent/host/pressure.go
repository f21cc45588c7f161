package host

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"auspex/internal/target"
)

// pressure reads pressure stall information (Linux, Documentation/accounting/psi.rst):
// the share of the last 10 seconds in which some or all tasks waited.
type pressure struct {
	m     *machine
	files []stall
}

// stall is the file of one resource.
type stall struct {
	file       file
	some, full value
	idle       bool // nothing is told of all tasks: of a processor the kernel says 0
	refs       [2]target.Ref
}

func newPressure(m *machine) source {
	p := &pressure{m: m}
	for _, name := range []string{"cpu", "memory", "io"} {
		path := "/host/pressure/" + name + "/state/"
		f := stall{file: newFile(m.proc("pressure", name)), idle: name == "cpu", refs: [2]target.Ref{m.tree.Leaf(path + "some")}}
		if !f.idle {
			f.refs[1] = m.tree.Leaf(path + "full")
		}
		p.files = append(p.files, f)
	}
	return p
}

func (p *pressure) read(at time.Time) {
	for i := range p.files {
		f := &p.files[i]
		f.some.kind, f.full.kind = nothing, nothing
		b, err := p.m.content(&f.file)
		if err != nil {
			if absent(err) {
				err = fmt.Errorf("%s cannot be read: the kernel has no pressure stall information, or it needs psi=1", f.file.path)
			}
			p.m.fault(err)
			continue
		}
		if err := f.parse(b); err != nil {
			f.some.kind, f.full.kind = nothing, nothing
			p.m.fault(fmt.Errorf("%s: %w", f.file.path, err))
		}
	}
	w := p.m.tree.Write(at)
	defer w.Close()
	for i := range p.files {
		f := &p.files[i]
		f.some.write(&w, f.refs[0])
		if !f.idle {
			f.full.write(&w, f.refs[1])
		}
	}
}

// parse reads lines as "some avg10=0.12 avg60=0.00 avg300=0.00 total=1234", in per cent.
func (f *stall) parse(b []byte) error {
	for rest := b; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		var v *value
		switch {
		case bytes.HasPrefix(line, []byte("some ")):
			v = &f.some
		case bytes.HasPrefix(line, []byte("full ")):
			v = &f.full
		default:
			return unexpected("some or full", line)
		}
		_, after, ok := bytes.Cut(line, []byte("avg10="))
		share, _, _ := bytes.Cut(after, []byte{' '})
		percent, err := strconv.ParseFloat(string(share), 64)
		if !ok || err != nil || !(percent >= 0 && percent <= 100) {
			return unexpected("avg10", line)
		}
		v.float(percent / 100)
	}
	if f.some.kind == nothing {
		return unexpected("some", b)
	}
	return nil
}
