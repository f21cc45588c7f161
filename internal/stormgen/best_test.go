package stormgen

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
)

// sites are observers of three shapes.
type sites map[string]*Observer

func newSites(samples int) sites {
	return sites{"tiny": NewObserver(samples, false), "four-feeds": NewObserver(samples, false), "one-feed": NewObserver(samples, false)}
}

// over draws storms on three shapes of site and returns what the observer makes of their faults.
func (x sites) over(t *testing.T, o Options) (list []Best, of []Fault) {
	t.Helper()
	o.Replay = true
	for _, shape := range slices.Sorted(maps.Keys(x)) {
		st := drawn(t, shape, o)
		for _, b := range x[shape].Best(st) {
			list = append(list, b)
			for i := range st.Truth.Incidents {
				if st.Truth.Incidents[i].ID == b.Fault {
					of = append(of, st.Truth.Incidents[i])
				}
			}
		}
	}
	return list, of
}

// The observer is right as often as it says, and on what leaves a sign of its own nearly always.
func TestTheObserverIsAsGoodAsItSays(t *testing.T) {
	var said, right, spread, n float64
	at := newSites(30)
	for seed, p := range []Profile{Easy, Chain, Big} {
		list, _ := at.over(t, Options{Seed: uint64(seed), Profile: p, Half: Both, Faults: 3})
		for _, b := range list {
			n++
			said += b.P
			spread += b.P * (1 - b.P)
			if b.Right {
				right++
			}
		}
	}
	if n < 15 || right < 0.85*n || math.Abs(said-right) > 3*math.Sqrt(spread)+1 {
		t.Errorf("of %.0f faults %.0f are right, expected %.1f", n, right, said)
	}
}

// What a source tells of the root at once is known at once; and what only comes to light later, later.
func TestTheObserverKnowsNothingBeforeItIsSaid(t *testing.T) {
	at := newSites(20)
	list, of := at.over(t, Options{Seed: 3, Faults: 2, Only: []string{"GPU memory fails"}})
	for i, b := range list {
		if !b.Right || b.Resource != of[i].Resource || b.Stable > 5 {
			t.Errorf("%s: %+v", of[i].Resource, b)
		}
	}
	list, of = at.over(t, Options{Seed: 3, Faults: 2, Only: []string{"memory module wears out and fails", "air unit fails"}})
	for i, b := range list {
		if last := of[i].LastArrival.Sub(of[i].SymptomArrival).Seconds() + 60; b.Stable > max(0, last) {
			t.Errorf("%s: stable after %.0f s, the last event came after %.0f", of[i].Resource, b.Stable, last)
		}
	}
	if len(list) < 3 {
		t.Errorf("%d faults", len(list))
	}
}

// Keeping a storm for the observer changes nothing of it; without, nothing is said.
func TestAStormIsTheSameWhereItIsKept(t *testing.T) {
	o := Options{Seed: 5, Profile: Overlap, Faults: 2}
	plain := drawn(t, "tiny", o)
	o.Replay = true
	kept := drawn(t, "tiny", o)
	a, b := NewObserver(20, true), NewObserver(20, true)
	if list := a.Best(plain); list != nil {
		t.Errorf("of a storm that was not kept: %v", list)
	}
	first, again := a.Best(kept), b.Best(kept)
	if len(first) == 0 || !reflect.DeepEqual(first, again) || !reflect.DeepEqual(first, a.Best(kept)) {
		t.Errorf("the same storm is seen differently: %v, %v", first, again)
	}
	if !reflect.DeepEqual(plain.Events, kept.Events) || !reflect.DeepEqual(plain.Truth, kept.Truth) {
		t.Error("a storm that is kept is another")
	}
}
