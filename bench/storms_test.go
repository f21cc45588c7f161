package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
)

const boundsFile = "testdata/storms.yaml"

// The whole table, of recorded storms and of sites of every shape, is no worse than it was.
// What --write-bounds changes in the file shows what a change of the correlator did.
func TestTheTableOfStormsKeepsItsBounds(t *testing.T) {
	racetest.OneGoroutine(t)
	names, err := BoundedTables(boundsFile)
	if err != nil || len(names) < 4 {
		t.Fatalf("%d tables, error %v", len(names), err)
	}
	if file, err := readBounds(boundsFile); err != nil || slices.ContainsFunc(file.Tables, func(b boundedTable) bool { return !b.Whole }) {
		t.Errorf("a table need not have a bound of each figure; error %v", err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var table bytes.Buffer
			err := BoundedStorms(t.Context(), boundsFile, false, StormsOptions{}, &table, name)
			for line := range strings.Lines(table.String()) {
				if strings.HasPrefix(line, "| profile ") || strings.HasPrefix(line, "| all ") || err != nil {
					t.Log(strings.TrimSpace(line))
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A bound that is not reached is named with its row and its figure, and so is one of a row or a
// figure that there is not.
func TestWhatIsWorseThanItsBoundsIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bounds.yaml")
	write := func(bounds string) {
		t.Helper()
		text := "tables:\n  - name: small\n    draw: {shapes: tiny, profiles: [easy], faults: 3, seed: 4}\n    bounds:\n" + bounds
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(anew bool) error {
		return BoundedStorms(t.Context(), path, anew, StormsOptions{}, &bytes.Buffer{})
	}
	write("      easy tuned: {top1: 1.5, b3_f1: .1, fragments: .01, rain: 1}\n      quiet tuned: {top1: .5}\n")
	err := check(false)
	if !errors.Is(err, ErrBounds) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"small, easy tuned: top1 is 1, at least 1.5", "easy tuned: fragments is", "at most 0.01", "no figure is called rain",
		"quiet tuned: no such row",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "b3_f1") {
		t.Errorf("%v: names what holds", err)
	}
	if err := check(true); err != nil {
		t.Fatal(err)
	}
	if err := check(false); err != nil {
		t.Errorf("bounds that were just written: %v", err)
	}
	// A bound that is taken out of what was written is missed.
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ row, want string }{
		{"easy tuned:", "easy tuned: no bounds"}, {"all tuned:", "all tuned: no bounds"}, {"  top1:", "tuned: no bound of top1"}, {"  brier:", "tuned: no bound of brier"},
	} {
		var kept strings.Builder
		skip := false
		for line := range strings.Lines(string(whole)) {
			if deep := len(line) - len(strings.TrimLeft(line, " ")); deep <= 6 {
				skip = false
			}
			if strings.Contains(line, c.row) {
				skip = strings.HasSuffix(c.row, "tuned:")
				continue
			}
			if !skip {
				kept.WriteString(line)
			}
		}
		if err := os.WriteFile(path, []byte(kept.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := check(false); !errors.Is(err, ErrBounds) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("without %s: %v, want %q", c.row, err, c.want)
		}
	}
	write("      easy tuned: {top1: .5}\n    drawn: 1\n")
	if err := check(false); err == nil || !strings.Contains(err.Error(), "drawn") {
		t.Errorf("a key that there is not: %v", err)
	}
}

// Each fault is played by itself: as many of them as in the storms, none in company and no noise.
func TestFaultsAreJudgedAlone(t *testing.T) {
	o := StormsOptions{Shapes: "tiny", Profiles: []string{"overlap"}, Faults: 5, First: 1}
	whole, err := storms(t.Context(), o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	o.Alone = true
	alone, err := storms(t.Context(), o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	w, a := whole[cell{"all", stormgen.Tuned}], alone[cell{"all", stormgen.Tuned}]
	if a.Faults != w.Faults || a.Scored != w.Scored || len(a.Rows) != len(w.Rows) {
		t.Errorf("%d faults of which %d are scored, in the storms %d and %d", a.Faults, a.Scored, w.Faults, w.Scored)
	}
	if a.Noise != 0 || a.Merges != 0 || w.Noise == 0 {
		t.Errorf("%d events of noise and %d merges, in the storms %d and %d", a.Noise, a.Merges, w.Noise, w.Merges)
	}
	if a.Lines == 0 || a.Lines >= w.Lines {
		t.Errorf("%d lines, in the storms %d", a.Lines, w.Lines)
	}
}

// Beside each kind of fault stands what could be known of it at best, and what is worth looking at is listed.
func TestFaultsStandBesideWhatCouldBeKnown(t *testing.T) {
	o := StormsOptions{Shapes: "tiny", Profiles: []string{"easy"}, Only: []string{"GPU memory fails"}, Faults: 2, First: 3, Best: 12, Misses: 5, Alone: true}
	var table bytes.Buffer
	if _, err := storms(t.Context(), o, &table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| at best | expected | stranger |", "| all | tuned | 2 | 1.000 | 1.000 |", "| GPU memory fails | tuned | 2 |", "| at best after s |"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
}
