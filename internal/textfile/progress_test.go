package textfile

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestProgressIsForTerminalsOnly(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, io.Discard)
	if _, err := io.Copy(io.Discard, p.Reading("x", strings.NewReader(strings.Repeat("x", 1<<20)))); err != nil {
		t.Fatal(err)
	}
	p.Clear()
	if out.Len() > 0 {
		t.Errorf("not a terminal, and told %q", out.String())
	}
	p.w, p.every = &out, 0 // as on a terminal
	in := p.Reading("x", strings.NewReader(strings.Repeat("x", 1<<20)))
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.Words(&out), "x:1: bad\n"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "\r\x1b[Kx: 1.0 MB read") || !strings.HasSuffix(got, "read\r\x1b[Kx:1: bad\n") {
		t.Errorf("told %q", got)
	}
}
