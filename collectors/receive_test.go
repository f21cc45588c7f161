package collectors

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"auspex/internal/waittest"
	"auspex/schemas"
)

// hearing is a configuration whose devices send by themselves.
type hearing struct {
	seer
	fail error // of its first run

	mu   sync.Mutex
	said []string
}

func (h *hearing) say(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, s)
}

func (h *hearing) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.said)
}

func (h *hearing) Listen(Settings) (Receiver, error) {
	h.say("listen")
	return h, nil
}

func (h *hearing) Place(rs []schemas.Resource) {
	for _, r := range rs {
		h.say("place " + r.ID)
	}
}

func (h *hearing) New(target schemas.Resource, _ Settings) (Collector, error) {
	h.say("new " + target.ID)
	return seen{}, nil
}

func (h *hearing) Run(ctx context.Context) error {
	h.say("run")
	h.mu.Lock()
	err := h.fail
	h.fail = nil
	h.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	h.say("end")
	return nil
}

func TestOneReceiverHearsAllAndIsRunAgain(t *testing.T) {
	h := &hearing{seer: seer{kind: schemas.KindServer, e: Evidence{Attr: "from"}}, fail: errors.New("the port is taken")}
	cfg := DefaultRunnerConfig()
	cfg.BackoffMin, cfg.BackoffMax, cfg.StartSpread = time.Millisecond, time.Millisecond, 0
	servers := []schemas.Resource{{ID: "a", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"from": "x"})}, {ID: "b", Kind: schemas.KindServer}}
	r := NewRunner(cfg, map[string]Config{"hearing": h}, nil, Settings{})
	if err := r.Reconcile(servers); err != nil {
		t.Fatal(err)
	}
	if got := h.all(); !slices.Equal(got, []string{"listen", "place a", "place b", "new a"}) {
		t.Fatalf("before it runs: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, func() {}) }()
	runs := func(n int) func() bool {
		return func() bool {
			got := 0
			for _, s := range h.all() {
				if s == "run" {
					got++
				}
			}
			return got == n
		}
	}
	waittest.For(t, "the second run", runs(2))
	// A configuration that changes has its receiver ended before the next begins.
	next := &hearing{seer: h.seer}
	replace, err := r.Prepare(map[string]Config{"hearing": next}, []string{"hearing"}, servers)
	if err != nil {
		t.Fatal(err)
	}
	replace()
	if got := h.all(); got[len(got)-1] != "end" {
		t.Errorf("it goes on: %q", got)
	}
	if err := r.Reconcile(servers); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "the next receiver", func() bool { return slices.Contains(next.all(), "run") })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := next.all(); got[len(got)-1] != "end" {
		t.Errorf("it goes on after the runner: %q", got)
	}
}

func TestWhoYieldsToNamedOnesIsYieldedToByTheOthers(t *testing.T) {
	with := func(e Evidence) Config { return seer{kind: schemas.KindServer, e: e} }
	signs := []Sign{SignXID, SignKernel}
	configs := map[string]Config{
		"syslog": with(Evidence{Signs: signs, Attr: "from", Yields: signs, To: []string{"file", "agent"}}),
		"gauge":  with(Evidence{Signs: []Sign{SignXID}, Attr: "gauge", Yields: []Sign{SignXID}, Partly: "only the last"}),
		"agent":  with(Evidence{Signs: signs, Attr: "agent", Yields: []Sign{SignKernel}}),
		"file":   with(Evidence{Signs: signs, Attr: "file"}),
	}
	for _, tc := range []struct {
		has  []string
		want map[string][]Sign
	}{
		{[]string{"from", "gauge"}, map[string][]Sign{"gauge": {SignXID}}},
		{[]string{"from", "agent"}, map[string][]Sign{"syslog": signs}},
		{[]string{"from", "file", "agent"}, map[string][]Sign{"syslog": signs, "agent": {SignKernel}}},
		{[]string{"from"}, nil},
	} {
		attrs := map[string]string{}
		for _, a := range tc.has {
			attrs[a] = "x"
		}
		server := schemas.Resource{ID: "a", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(attrs)}
		have := bringing(configs, []schemas.Resource{server})
		for name := range configs {
			if got := have.taken(configs, name, "a"); attrs[evidence(configs[name]).Attr] != "" && !slices.Equal(got, tc.want[name]) {
				t.Errorf("%v: %s leaves %v, want %v", tc.has, name, got, tc.want[name])
			}
		}
		for _, b := range BlindSpots(configs, schemas.Topology{Resources: []schemas.Resource{server}}) {
			if slices.Contains(signs, b.Sign) {
				t.Errorf("%v: %s", tc.has, b)
			}
		}
	}
}

type onlyHearing struct{ *hearing }

func (onlyHearing) Passive() {}

// A device that is asked is asked by one process, though it may send as well; who only sends is heard by whom he sends to.
func TestWhoIsAskedIsAskedByOneProcess(t *testing.T) {
	servers := []schemas.Resource{{ID: "a", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"from": "x"})}}
	for _, passive := range []bool{true, false} {
		h := &hearing{seer: seer{kind: schemas.KindServer, e: Evidence{Attr: "from"}}}
		c := Config(h)
		if passive {
			c = onlyHearing{h}
		}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"hearing": c}, nil, Settings{})
		r.Share(func(schemas.Resource) bool { return false }) // another has it
		if err := r.Reconcile(servers); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(h.all(), "new a"); got != passive {
			t.Errorf("only sends %v: read here %v", passive, got)
		}
	}
}
