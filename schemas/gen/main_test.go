package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCommittedListIsThatOfTheContract(t *testing.T) {
	out := filepath.Join(t.TempDir(), "types.go")
	if err := write("../../docs/reference/formats.md", out); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../event_types.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("schemas/event_types.go is not what the contract says; write it with: go generate ./schemas")
	}
}

func TestATypeIsNamedOnce(t *testing.T) {
	const head = "x\n| type | code | from |\n|---|---|---|\n"
	for page, want := range map[string]string{
		"nothing": "no table",
		head + "| `a.b`, `c.d` | x | y |\n| `a.b` |":                                  "stands twice",
		head + "| `a.b` (`attrs.x`: not one), `c.d_e` | `f.g` | y |\n\n| `h.i` | | |": "",
	} {
		got, err := types(page)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", page, err, want)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != "a.b c.d_e" {
			t.Errorf("%q: %v, %v", page, got, err)
		}
	}
}
