package control

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/control/policy"
	"auspex/schemas"
)

// shares are groups that a test draws.
type shares struct {
	of  map[string][]Group
	out map[string]bool // servers out of service
	had map[string]bool // servers that somebody has
}

func (s shares) Of(_ context.Context, server string) ([]Group, error) { return s.of[server], nil }

func (s shares) Members(_ context.Context, g Group) (m Members, err error) {
	for _, server := range slices.Sorted(maps.Keys(s.of)) {
		if !slices.Contains(s.of[server], g) {
			continue
		}
		m.All = append(m.All, server)
		if !s.out[server] {
			m.InService = append(m.InService, server)
			if !s.had[server] {
				m.Free = append(m.Free, server)
			}
		}
	}
	return m, nil
}

func TestWhatServersShareIsBounded(t *testing.T) {
	pool := Group{schemas.ScopePool, "prod"}
	feeds := []Group{{schemas.ScopeFeed, "a"}, {schemas.ScopeFeed, "b"}}
	job := Group{schemas.ScopeJob, "j1"}
	of := map[string][]Group{
		"s1": {pool, feeds[0], feeds[1]}, "s2": {pool, feeds[0], job}, "s3": {pool, feeds[1]}, "s4": {pool},
	}
	for name, c := range map[string]struct {
		limit string
		taken []string // beside s1
		out   []string
		had   []string
		again bool // s1 is taken already
		want  []string
	}{
		"nothing is taken":                      {limit: "{scope: feed, held: 1}", want: []string{"feed_budget 1/1 true", "feed_budget 1/1 true"}},
		"the other of one feed":                 {limit: "{scope: feed, held: 1}", taken: []string{"s2"}, want: []string{"feed_budget 2/1 false", "feed_budget 1/1 true"}},
		"the others of both":                    {limit: "{scope: feed, held: 1}", taken: []string{"s2", "s3"}, want: []string{"feed_budget 2/1 false", "feed_budget 2/1 false"}},
		"one feed alone has a limit":            {limit: "{scope: feed, name: b, held: 1}", taken: []string{"s2"}, want: []string{"feed_budget 1/1 true"}},
		"a part":                                {limit: "{scope: pool, held: 50%}", taken: []string{"s4"}, want: []string{"pool_budget 2/2 true"}},
		"more than a part":                      {limit: "{scope: pool, held: 50%}", taken: []string{"s4", "s3"}, want: []string{"pool_budget 3/2 false"}},
		"a group that it is not of":             {limit: "{scope: job, held: 0}"},
		"three must stay":                       {limit: "{scope: pool, keep: 3}", want: []string{"pool_in_service 3/3 true"}},
		"three must stay, and one is taken":     {limit: "{scope: pool, keep: 3}", taken: []string{"s4"}, want: []string{"pool_in_service 2/3 false"}},
		"three must stay, and one is broken":    {limit: "{scope: pool, keep: 75%}", out: []string{"s4"}, want: []string{"pool_in_service 2/3 false"}},
		"what is broken itself may be repaired": {limit: "{scope: pool, keep: 4}", out: []string{"s1"}, want: []string{"pool_in_service 3/4 true"}},
		"what is taken is repaired":             {limit: "{scope: pool, keep: 4}", again: true, want: []string{"pool_in_service 3/4 true"}},
		"two must be free":                      {limit: "{scope: pool, free: 2}", had: []string{"s2"}, want: []string{"pool_free 2/2 true"}},
		"two must be free, and are not":         {limit: "{scope: pool, free: 2}", had: []string{"s2", "s3"}, want: []string{"pool_free 1/2 false"}},
		"who has it leaves none less free":      {limit: "{scope: pool, free: 3}", had: []string{"s1"}, want: []string{"pool_free 3/3 true"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.Replace(policyText, "budgets: {", "budgets: {limits: ["+c.limit+"], ", 1))
			ctl := b.controller()
			s := shares{of: of, out: map[string]bool{}, had: map[string]bool{}}
			for _, server := range c.out {
				s.out[server] = true
			}
			for _, server := range c.had {
				s.had[server] = true
			}
			ctl.d.Groups = s
			for _, server := range c.taken {
				ctl.takeUp(nil, []*climb{{Subject: server, Touched: true, Groups: of[server]}})
			}
			rails, err := ctl.limits(t.Context(), &climb{Subject: "s1", Touched: c.again}, policy.Rung{Kind: "drain"}, ctl.store.now())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rails {
				got = append(got, fmt.Sprintf("%s %g/%g %v", r.Name, r.Value, r.Limit, r.OK))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if goes, wait := verdict(rails); !goes && !wait {
				t.Error("it is refused for good")
			}
		})
	}
}

// A server is of the job that it ran when it was taken, also when that has gone to another, and over a restart.
func TestAServerIsOfTheJobThatItRanWhenItWasTaken(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.Replace(policyText, "budgets: {", "budgets: {limits: [{scope: job, held: 1, per_hour: 1}], ", 1))
	c := b.controller()
	job := Group{schemas.ScopeJob, "j1"}
	s := shares{of: map[string][]Group{server: {job}, "s2": {job}}}
	c.d.Groups = s
	k := b.climbedTo(c, "drain")
	p, _ := c.policies.For(k.Fault)
	if _, err := c.limits(t.Context(), k, p.Ladder[1], c.store.now()); err != nil {
		t.Fatal(err)
	}
	a := c.newAction(k, p, 1, 1, p.Ladder[1])
	if err := c.store.saveAction(t.Context(), k, &a, true, c.store.now(), actor, "intend"); err != nil {
		t.Fatal(err)
	}
	delete(s.of, server)
	again := b.controller()
	again.d.Groups = s
	open, err := again.store.cases(t.Context(), caseOpen)
	if err != nil {
		t.Fatal(err)
	}
	again.takeUp(nil, open)
	rails, err := again.limits(t.Context(), &climb{Subject: "s2"}, p.Ladder[1], c.store.now())
	if err != nil || len(rails) != 2 || rails[0].OK || rails[0].Value != 2 || rails[1].OK || rails[1].Value != 2 {
		t.Errorf("%+v %v", rails, err)
	}
}

func TestLimitsWithoutWhatServersShareHoldEverything(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.Replace(policyText, "budgets: {", "budgets: {limits: [{scope: job, held: 1}], ", 1))
	c := b.controller()
	p, _ := c.policies.For("gpu.fallen_off_bus")
	if _, err := c.check(t.Context(), &climb{Subject: server, Target: part, Fault: "gpu.fallen_off_bus", State: caseOpen, Confidence: 1}, p, 0, false); err == nil {
		t.Error("a step goes that nobody can hold against its limits")
	}
}

// counted counts, at each drain, the servers of a group that are out.
type counted struct {
	worldStep
	mu   *sync.Mutex
	of   map[string][]Group
	most map[Group]int
}

func (c counted) Apply(ctx context.Context, s Step) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.worldStep.Apply(ctx, s)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	now := map[Group]int{}
	for server, out := range c.w.drained {
		for _, g := range c.of[server] {
			if out {
				now[g]++
			}
		}
	}
	for g, n := range now {
		c.most[g] = max(c.most[g], n)
	}
	return err
}

// Faults of many servers at once, on sites that are drawn: no limit is exceeded at any time, and all are repaired in the end.
func TestNoLimitIsExceededHoweverManyFail(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			b := newBench(t, schemas.ModeEnforce)
			writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.NewReplacer(
				"fleet: 2", "fleet: 100, limits: [{scope: feed, held: 2}, {scope: leaf, held: 1}, {scope: pool, keep: 60%}]",
				"rack: 1", "rack: 100", "per_hour: 4", "per_hour: 100", "cases: 5", "cases: 100", "verify: 2s", "verify: 1m",
			).Replace(policyText))
			c := b.controller()
			s := shares{of: map[string][]Group{}}
			var incidents []schemas.Incident
			for i := range 10 {
				name := fmt.Sprintf("gpu-r%02d-%02d", i/5, i%5)
				s.of[name] = []Group{
					{schemas.ScopeFeed, fmt.Sprint("f", r.IntN(3))}, {schemas.ScopeLeaf, fmt.Sprint("l", r.IntN(4))}, {schemas.ScopePool, "all"},
				}
				incidents = append(incidents, incident(fmt.Sprint("i", i), name+"/gpu2", "gpu.fallen_off_bus"))
			}
			c.d.Groups = s
			seen := counted{worldStep{b.w}, &sync.Mutex{}, s.of, map[Group]int{}}
			c.d.Remediators = map[string]Remediator{"drain": seen, "power_cycle": seen, "uncordon": seen}
			b.until(c, func(as []schemas.Action) bool {
				back := 0
				for _, a := range as {
					if a.Kind == "uncordon" && a.State == schemas.ActionDone {
						back++
					}
				}
				return back == len(incidents)
			}, incidents...)
			for g, most := range seen.most {
				limit := map[string]int{schemas.ScopeFeed: 2, schemas.ScopeLeaf: 1, schemas.ScopePool: 4}[g.Scope]
				if most > limit {
					t.Errorf("%d servers of %s %s were out at once; the limit is %d", most, g.Scope, g.Name, limit)
				}
			}
			t.Log(seen.most)
		})
	}
}
