package presets

import (
	"os"
	"path/filepath"
	"testing"
)

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	more, err := filepath.Glob("*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(files, more...) {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("subscribe: [{path: '/a[b={port}]/c'}]\nreadings: [{path: '/a[b={port}]/c', metric: x}]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse("x", b)
		if err != nil {
			return
		}
		for _, s := range p.Subscribe { // what was taken can be asked for
			if _, err := s.GNMI(); err != nil {
				t.Errorf("%s: %v", s.Path, err)
			}
		}
	})
}

func FuzzParsePath(f *testing.F) {
	f.Add("openconfig:/interfaces/interface[name=*]/state/counters")
	f.Add(`/a[b=c\]d]/e`)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePath(s)
		if err == nil && p == nil {
			t.Errorf("%q is no path and no error", s)
		}
	})
}
