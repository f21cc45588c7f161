// Package controltest is the suite that every driver of control passes: what it
// plans changes nothing, what it applies is asked once, what was refused for
// certain is told apart from what may have happened, and only an effect that can
// be read back counts. A driver's test serves its peer in the peer's own protocol.
package controltest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/control"
	"auspex/control/messages"
	"auspex/schemas"
)

// Manner is how a peer behaves.
type Manner int

// The manners of peers.
const (
	Sound    Manner = iota
	Refusing        // says no to what changes something
	Lossy           // takes what changes something, and its answer is lost
	Mute            // takes connections and never answers
	Gone            // nobody listens
)

// World is a peer and a driver that is configured for it.
type World struct {
	Driver   control.Driver
	Settings control.Settings
	Server   string                       // one that the peer knows
	Target   string                       // the part that is to blame; empty is the server
	With     map[string]map[string]string // parameters of steps, by kind
	// Asked counts the requests that would change something.
	Asked func() int
	// Effects lets what was asked take place, step by step: Verify is called after
	// each. The last one is the wanted state.
	Effects map[string][]func()
}

// Harness is what the suite must know of a driver.
type Harness struct {
	Kinds []string // of rungs that the driver does, in the order in which they are done
	// Some says that another harness has the driver's other kinds.
	Some bool
	// Apart says that each World is a peer of its own: the kinds are tried side by side.
	Apart bool
	// World serves a peer until the test ends, in every manner.
	World func(t *testing.T, m Manner) World
}

const (
	// patience guards against what never comes.
	patience = 2 * time.Minute
	// shortly is how long a call to a mute peer may take.
	shortly = 300 * time.Millisecond
)

// Run runs the checks.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Run("the constructor performs no I/O", h.testInert)
	for _, kind := range h.Kinds {
		t.Run(kind, func(t *testing.T) {
			if h.Apart {
				t.Parallel()
			}
			t.Run("a plan changes nothing", func(t *testing.T) { h.testPlan(t, kind) })
			t.Run("a server that is not known cannot", func(t *testing.T) { h.testUnknown(t, kind) })
			t.Run("only an effect that is read back verifies", func(t *testing.T) { h.testEffect(t, kind) })
			t.Run("without a peer nothing was sent", func(t *testing.T) { h.testGone(t, kind) })
			t.Run("a refusal is certain", func(t *testing.T) { h.testRefusing(t, kind) })
			t.Run("an answer that is lost is no refusal", func(t *testing.T) { h.testLossy(t, kind) })
			t.Run("a mute peer holds nobody", func(t *testing.T) { h.testMute(t, kind) })
		})
	}
}

func bounded(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (w World) remediator(t *testing.T, kind string) control.Remediator {
	t.Helper()
	all, err := w.Driver.Remediators(w.Settings)
	if err != nil {
		t.Fatal(err)
	}
	r := all[kind]
	if r == nil {
		t.Fatalf("there is no remediator for %s", kind)
	}
	return r
}

func (w World) step(kind string) control.Step {
	return control.Step{ID: "act-" + kind, Kind: kind, Server: w.Server, Target: cmp.Or(w.Target, w.Server), Reason: "a test", Since: time.Now(), With: w.With[kind]}
}

func known(t *testing.T, s schemas.Sentence) {
	t.Helper()
	if messages.Template(s.ID) == "" {
		t.Errorf("it says %+v, which no catalogue has", s)
	}
}

func (h Harness) testInert(t *testing.T) {
	w := h.World(t, Gone)
	before := goleak.IgnoreCurrent()
	all, err := w.Driver.Remediators(w.Settings)
	if err != nil {
		t.Fatal(err)
	}
	for kind := range all {
		if !h.Some && !slices.Contains(h.Kinds, kind) {
			t.Errorf("%s is not tested", kind)
		}
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// before does the rungs before one, so that its own is to be done.
func (h Harness) before(t *testing.T, w World, kind string) {
	t.Helper()
	for _, k := range h.Kinds[:slices.Index(h.Kinds, kind)] {
		if err := w.remediator(t, k).Apply(bounded(t, patience), w.step(k)); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		for _, happens := range w.Effects[k] {
			happens()
		}
	}
}

func (h Harness) testPlan(t *testing.T, kind string) {
	w := h.World(t, Sound)
	sentence, err := w.remediator(t, kind).Plan(bounded(t, patience), w.step(kind))
	if err != nil {
		t.Fatal(err)
	}
	known(t, sentence)
	if n := w.Asked(); n != 0 {
		t.Errorf("a plan asked for %d changes", n)
	}
}

func (h Harness) testUnknown(t *testing.T, kind string) {
	w := h.World(t, Sound)
	s := w.step(kind)
	s.Server = "a server that nobody knows"
	r := w.remediator(t, kind)
	err := r.Apply(bounded(t, patience), s)
	if !errors.Is(err, control.ErrRejected) && !errors.Is(err, control.ErrCannot) {
		t.Errorf("apply: %v", err)
	}
	if v, _, err := r.Verify(bounded(t, patience), s); v == control.Verified || !errors.Is(err, control.ErrCannot) {
		t.Errorf("verify: %d, %v", v, err)
	}
	if n := w.Asked(); n != 0 {
		t.Errorf("%d changes were asked for", n)
	}
}

func (h Harness) testEffect(t *testing.T, kind string) {
	w := h.World(t, Sound)
	h.before(t, w, kind)
	r, s := w.remediator(t, kind), w.step(kind)
	verify := func() control.Verdict {
		t.Helper()
		if p, ok := r.(control.Pursuer); ok { // as control does
			if err := p.Pursue(bounded(t, patience), s); err != nil {
				t.Fatal(err)
			}
		}
		v, observed, err := r.Verify(bounded(t, patience), s)
		if err != nil {
			t.Fatal(err)
		}
		known(t, observed)
		return v
	}
	if v := verify(); v == control.Verified {
		t.Error("verified before it was asked for")
	}
	before := w.Asked()
	if err := r.Apply(bounded(t, patience), s); err != nil {
		t.Fatal(err)
	}
	if n := w.Asked() - before; n != 1 {
		t.Errorf("one step asked for %d changes", n)
	}
	if v := verify(); v == control.Verified {
		t.Error("verified while the peer has done nothing")
	}
	for i, happens := range w.Effects[kind] {
		happens()
		if v, last := verify(), i == len(w.Effects[kind])-1; (v == control.Verified) != last {
			t.Errorf("after effect %d of %d: verdict %d", i+1, len(w.Effects[kind]), v)
		}
	}
	if n := w.Asked() - before; n != 1 {
		t.Errorf("to verify asked for %d changes more", n-1)
	}
}

func (h Harness) testGone(t *testing.T, kind string) {
	w := h.World(t, Gone)
	r, s := w.remediator(t, kind), w.step(kind)
	if err := r.Apply(bounded(t, patience), s); !errors.Is(err, control.ErrRejected) {
		t.Errorf("apply: %v", err)
	}
	if v, _, err := r.Verify(bounded(t, patience), s); v != control.Pending || err == nil {
		t.Errorf("verify: %d, %v", v, err)
	}
}

func (h Harness) testRefusing(t *testing.T, kind string) {
	w := h.World(t, Refusing)
	err := w.remediator(t, kind).Apply(bounded(t, patience), w.step(kind))
	if !errors.Is(err, control.ErrRejected) && !errors.Is(err, control.ErrCannot) {
		t.Errorf("apply: %v", err)
	}
}

func (h Harness) testLossy(t *testing.T, kind string) {
	w := h.World(t, Lossy)
	err := w.remediator(t, kind).Apply(bounded(t, patience), w.step(kind))
	if err == nil || errors.Is(err, control.ErrRejected) || errors.Is(err, control.ErrCannot) {
		t.Errorf("apply: %v", err)
	}
	if n := w.Asked(); n != 1 {
		t.Errorf("%d changes were asked for, want one that is not sent again", n)
	}
}

func (h Harness) testMute(t *testing.T, kind string) {
	w := h.World(t, Mute)
	r, s := w.remediator(t, kind), w.step(kind)
	for name, call := range map[string]func(context.Context) error{
		"apply":  func(ctx context.Context) error { return r.Apply(ctx, s) },
		"verify": func(ctx context.Context) error { _, _, err := r.Verify(ctx, s); return err },
	} {
		ctx := bounded(t, shortly)
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: a mute peer has answered", name)
			}
		case <-time.After(patience):
			t.Fatalf("%s does not end with its context", name)
		}
	}
}

// Behave wraps a sound peer that speaks HTTP; changes tells which requests would
// change something.
func Behave(m Manner, sound http.Handler, changes func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case m == Mute:
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
			<-r.Context().Done()
		case m == Refusing && changes(r):
			http.Error(w, `{"errors":[{"error":"not permitted"}]}`, http.StatusForbidden)
		case m == Lossy && changes(r):
			sound.ServeHTTP(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		default:
			sound.ServeHTTP(w, r)
		}
	})
}

// discard loses an answer.
type discard struct{ h http.Header }

func (d discard) Header() http.Header       { return d.h }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
