package app

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestProgressIsForTerminalsOnly(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, io.Discard)
	if _, err := io.Copy(io.Discard, p.reading("x", strings.NewReader(strings.Repeat("x", 1<<20)))); err != nil {
		t.Fatal(err)
	}
	p.clear()
	if out.Len() > 0 {
		t.Errorf("not a terminal, and told %q", out.String())
	}
	p.w, p.every = &out, 0 // as on a terminal
	in := p.reading("x", strings.NewReader(strings.Repeat("x", 1<<20)))
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.words(&out), "x:1: bad\n"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "\r\x1b[Kx: 1.0 MB read") || !strings.HasSuffix(got, "read\r\x1b[Kx:1: bad\n") {
		t.Errorf("told %q", got)
	}
}
