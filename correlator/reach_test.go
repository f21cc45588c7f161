package correlator

import (
	"slices"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// TestAStepAsksWhatItsPartsArePartOf: it stops at no others, in either direction.
func TestAStepAsksWhatItsPartsArePartOf(t *testing.T) {
	for _, sh := range []shape{small, demo, hall, four, lean} {
		w := sh.Build()
		ways := NewWays(propagation.Default(), w.Topology)
		feed := w.ID("pdu0.0")
		for text, of := range map[string]func(kind string) bool{
			"powers:psu":                func(string) bool { return true },
			"powers:psu in switch":      func(kind string) bool { return kind == schemas.KindSwitch },
			"powers:psu not in switch":  func(kind string) bool { return kind != schemas.KindSwitch },
			"powers:psu in server":      func(kind string) bool { return kind == schemas.KindServer },
			"powers:psu not in rack":    func(string) bool { return false },
			"powers:psu in rack":        func(string) bool { return true },
			"powers:psu in workload":    func(string) bool { return false },
			"feeds:switch not in a_row": func(string) bool { return true },
		} {
			t.Run(w.Name+"/"+text, func(t *testing.T) {
				way, err := propagation.ParseWay(text)
				if err != nil || propagation.WayString(way) != text {
					t.Fatalf("%v: %v", way, err)
				}
				plain := []propagation.Step{{Op: way[0].Op, Kind: way[0].Kind}}
				var want []string
				for _, part := range ways.Reach(feed, plain, time.Time{}) {
					device := ways.e.g.server(ways.e.g.ensure(part))
					if of(ways.e.g.kindOf(device)) {
						want = append(want, part)
					}
				}
				got := ways.Reach(feed, way, time.Time{})
				if !sameSet(got, want) {
					t.Fatalf("%q, want %q", got, want)
				}
				for _, part := range ways.Reach(feed, plain, time.Time{}) {
					if back := ways.Suspects(part, way, []string{schemas.KindPDU}); slices.Contains(back, feed) != slices.Contains(got, part) {
						t.Errorf("%s: back to %q", part, back)
					}
				}
			})
		}
	}
}
