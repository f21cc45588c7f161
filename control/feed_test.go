package control

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/store/caps"
	"auspex/internal/store/records"
	"auspex/schemas"
)

const feedPolicy = `
budgets: {fleet: 1, rack: 1, per_hour: 1}
policies:
  - name: feed
    faults: [power.feed_loss]
    ladder:
      - {kind: inspect_feed, person: true}
      - {kind: cap_power, verify: 300ms}
      - {kind: uncap_power, verify: 2s, quiet: 20ms}
`

// row is a row of servers that hang on two PDUs, each with a limit that can be set.
type row struct {
	mu      sync.Mutex
	rating  string
	draw    map[string]float64
	limit   map[string]string
	refuses map[string]bool
	lies    map[string]bool // say yes, and do nothing
	mute    map[string]bool
	set     int
}

func newRow(rating string, draws ...float64) *row {
	r := &row{rating: rating, draw: map[string]float64{}, limit: map[string]string{}, refuses: map[string]bool{}, lies: map[string]bool{}, mute: map[string]bool{}}
	for i, w := range draws {
		r.draw[name(i+1)] = w
	}
	return r
}

func name(i int) string { return fmt.Sprintf("gpu-r01-%02d", i) }

func (r *row) limits() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.limit)
}

func (*row) Whole() bool { return true }

func (r *row) Use(_ context.Context, server, _ string) (Use, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mute[server] {
		return Use{Draw: math.NaN()}, fmt.Errorf("%s does not answer", server)
	}
	u := Use{Draw: r.draw[server], Way: "Redfish PowerLimit", Is: r.limit[server]}
	if w, err := strconv.ParseFloat(u.Is, 64); err == nil {
		u.Limit, u.Draw = w, min(u.Draw, w)
	}
	return u, nil
}

func (*row) To(_ Use, watts float64) (string, error) { return fmt.Sprint(watts), nil }

func (r *row) Set(_ context.Context, server, _, to, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set++
	if r.refuses[server] {
		return fmt.Errorf("%w: 400 Bad Request", ErrRejected)
	}
	if !r.lies[server] {
		r.limit[server] = to
	}
	return nil
}

func (r *row) feed(pdu string) (Feed, bool) {
	if !strings.HasPrefix(pdu, "pdu-") {
		return Feed{}, false
	}
	u := Unit{PDU: schemas.Resource{ID: "pdu-r01-b", Kind: schemas.KindPDU, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrRating: r.rating})}, Servers: map[string]float64{}}
	for s := range r.draw {
		u.Servers[s] = 1
	}
	return Feed{Units: []Unit{u}}, true
}

func (b *bench) feeds(r *row) *Controller {
	writeFile(b.t, filepath.Join(b.dir, "policy.yaml"), feedPolicy)
	c := b.controller()
	maps.Copy(c.d.Remediators, limiters([]Capper{r}, Settings{Caps: caps.New(b.db), Feeds: r.feed}))
	return c
}

// supplies tells, as a board controller does, that the supplies on a PDU have no input, or have it back.
func (b *bench) supplies(status string) schemas.Incident {
	b.t.Helper()
	i := incident("i1", "pdu-r01-a", "power.feed_loss")
	a := alert("i1-psu", name(1)+"/psu0", schemas.EventPSUInputLost, schemas.SourceRedfish, "", schemas.SeverityCritical, i.At)
	a.Status = status
	if status == schemas.AlertResolved {
		a.ResolvedAt = time.Now()
	}
	i.Events = append(i.Events, a.ID)
	if err := records.New(b.db).PutAlert(b.t.Context(), a); err != nil {
		b.t.Fatal(err)
	}
	return i
}

func is(kind, state string) func([]schemas.Action) bool {
	return func(as []schemas.Action) bool { return states(as)[kind] == state }
}

func of(as []schemas.Action, kind string) schemas.Action {
	for _, a := range as {
		if a.Kind == kind {
			return a
		}
	}
	return schemas.Action{}
}

func TestWhatHangsOnAFeedThatWouldTripDrawsLessUntilTheOtherIsBack(t *testing.T) {
	t.Parallel()
	b, r := newBench(t, schemas.ModeEnforce), newRow("16000", 5000, 5000, 5000, 5000)
	r.limit[name(3)] = "4900" // by somebody else
	lost := b.supplies(schemas.AlertFiring)
	c := b.feeds(r)
	as := b.until(c, is("uncap_power", schemas.ActionWaiting), lost)
	a := of(as, "cap_power")
	if a.State != schemas.ActionDone || len(a.Stages) != 4 || a.Stages[2].State != "success" {
		t.Errorf("cap_power is %s (%s) with %v", a.State, a.Detail, a.Stages)
	}
	sum := 0.0
	for s, l := range r.limits() {
		w, err := strconv.ParseFloat(l, 64)
		if sum += w; err != nil || w < 3700 || w > 3900 {
			t.Errorf("%s is limited to %q", s, l)
		}
	}
	if sum > 16000*margin {
		t.Errorf("the limits are %g W together", sum)
	}
	for _, want := range []schemas.Rail{{Name: railLoad, Value: 19900, Limit: 16000, OK: true}, {Name: railSeen, Value: 1, Limit: 1, OK: true}} {
		found := false
		for _, got := range a.Rails {
			found = found || got.Name == want.Name && got.Value == want.Value && got.Limit == want.Limit && got.OK
		}
		if !found {
			t.Errorf("no rail %v among %v", want, a.Rails)
		}
	}
	if fleet, rack := c.held(&climb{Subject: "gpu-r01-01", Rack: "r01"}); fleet != 1 || rack != 1 {
		t.Errorf("%d servers count as out, %d in the rack", fleet, rack)
	}

	// Another process takes it up, with the feed still lost, and then with it back.
	as = b.until(b.feeds(r), is("uncap_power", schemas.ActionWaiting))
	if got := of(as, "uncap_power").Rails; len(got) == 0 || lacking(got, railFed) == false {
		t.Errorf("the limits are held by %v", got)
	}
	set := r.set
	b.keep(b.supplies(schemas.AlertResolved))
	as = b.until(b.feeds(r), is("uncap_power", schemas.ActionDone))
	if d := cmp.Diff(map[string]string{name(1): "", name(2): "", name(3): "4900", name(4): ""}, r.limits()); d != "" {
		t.Errorf("after the release: %s\n%s", d, of(as, "uncap_power").VerifiedBy)
	}
	if r.set-set != 4 {
		t.Errorf("%d limits were taken back", r.set-set)
	}
}

// TestALimitThatABoardForgotIsSetAgain while the feed is still lost; one that somebody has changed is told, and left.
func TestALimitThatABoardForgotIsSetAgain(t *testing.T) {
	t.Parallel()
	b, r := newBench(t, schemas.ModeEnforce), newRow("16000", 5000, 5000, 5000, 5000)
	b.until(b.feeds(r), is("uncap_power", schemas.ActionWaiting), b.supplies(schemas.AlertFiring))
	before, set := r.limits(), r.set
	r.mu.Lock()
	r.limit[name(2)], r.limit[name(3)] = "", "4500" // its controller began anew, and somebody has changed the other
	r.mu.Unlock()
	c, began := b.feeds(r), time.Now()
	c.d.Now = func() time.Time { return began.Add(100 * time.Since(began)) }
	c.cfg.LeaseTTL, c.store.ttl = time.Hour, time.Hour // by that clock
	as := b.until(c, func(as []schemas.Action) bool { return strings.Contains(of(as, "uncap_power").Detail, "set again") })
	a := of(as, "uncap_power")
	if a.State != schemas.ActionWaiting || !strings.Contains(a.Detail, "set again: "+name(2)+" 3800 W") || !strings.Contains(a.Detail, "no longer in force: "+name(3)+" 4500 W") {
		t.Errorf("%s: %s", a.State, a.Detail)
	}
	before[name(3)] = "4500"
	if d := cmp.Diff(before, r.limits()); d != "" || r.set != set+1 {
		t.Errorf("%d limits were set: %s", r.set-set, d)
	}
	b.keep(b.supplies(schemas.AlertResolved))
	b.until(b.feeds(r), is("uncap_power", schemas.ActionDone))
	if d := cmp.Diff(map[string]string{name(1): "", name(2): "", name(3): "4500", name(4): ""}, r.limits()); d != "" {
		t.Errorf("after the release: %s", d)
	}
}

func TestAServerThatCannotBeLimitedLeavesTheOthersToGoOn(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refuses", "lies", "mute"} {
		t.Run(how, func(t *testing.T) {
			b, r := newBench(t, schemas.ModeEnforce), newRow("16000", 5000, 5000, 5000, 5000)
			map[string]map[string]bool{"refuses": r.refuses, "lies": r.lies, "mute": r.mute}[how][name(2)] = true
			c := b.feeds(r)
			as := b.until(c, is("uncap_power", schemas.ActionWaiting), b.supplies(schemas.AlertFiring))
			a, told := of(as, "cap_power"), of(as, "ticket").ID != ""
			failed := how != "mute" // one that is not reached is none of the step, but counts
			if got := a.State == schemas.ActionFailed; got != failed || told != failed {
				t.Errorf("cap_power is %s: %s; a person is told %t", a.State, a.Detail, told)
			}
			if failed && !strings.Contains(a.Detail, name(2)) {
				t.Errorf("nothing of %s in %q", name(2), a.Detail)
			}
			sum := r.draw[name(2)]
			for _, i := range []int{1, 3, 4} {
				w, err := strconv.ParseFloat(r.limits()[name(i)], 64)
				if err != nil {
					t.Errorf("%s has no limit", name(i))
				}
				sum += w
			}
			if how != "lies" && sum > 16000 { // who lies is found out too late
				t.Errorf("with what it draws the feed carries %g W", sum)
			}
			b.keep(b.supplies(schemas.AlertResolved))
			b.until(b.feeds(r), is("uncap_power", schemas.ActionDone))
			for s, l := range r.limits() {
				if l != "" {
					t.Errorf("%s is still limited to %s", s, l)
				}
			}
		})
	}
}

func TestNothingIsLimitedWithoutNeed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ what, rating, mode, state, says string }{
		{"holds", "26000", schemas.ModeEnforce, schemas.ActionWaiting, "carries 20000 W and is rated for 26000 W"},
		{"nobody knows", "", schemas.ModeEnforce, schemas.ActionRefused, "gives no rating_watts of pdu-r01-b"},
		{"observe", "16000", schemas.ModeObserve, schemas.ActionProposed, ""},
		{"dry-run", "16000", schemas.ModeDryRun, schemas.ActionProposed, "gpu-r01-01 5000 W → 3800 W"},
		{"a person is asked", "16000", schemas.ModeApprove, schemas.ActionWaiting, ""},
	} {
		t.Run(tc.what, func(t *testing.T) {
			b, r := newBench(t, tc.mode), newRow(tc.rating, 5000, 5000, 5000, 5000)
			as := b.until(b.feeds(r), func(as []schemas.Action) bool {
				a := of(as, "cap_power")
				return a.State == tc.state && len(a.Rails) > 2
			}, b.supplies(schemas.AlertFiring))
			a := of(as, "cap_power")
			if !strings.Contains(a.Detail, tc.says) || r.set != 0 {
				t.Errorf("%q, and %d limits were set", a.Detail, r.set)
			}
		})
	}
}

func TestOnlyALimitOfOursIsTakenBack(t *testing.T) {
	t.Parallel()
	b, r := newBench(t, schemas.ModeEnforce), newRow("", 5000)
	all := limiters([]Capper{r}, Settings{Caps: caps.New(b.db)})
	step := func(kind, id string) Step {
		return Step{ID: id, Kind: kind, Server: name(1), Target: name(1), With: map[string]string{policy.Watts: "3000"}}
	}
	does := func(kind, id, says string) {
		t.Helper()
		s := step(kind, id)
		if err := all[kind].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		v, how, err := all[kind].Verify(t.Context(), s)
		if v != Verified || err != nil || !strings.Contains(messages.Text(how), says) {
			t.Errorf("%s: %d %q %v", kind, v, messages.Text(how), err)
		}
	}
	would, err := all["cap_power"].Plan(t.Context(), step("cap_power", "a1"))
	if err != nil || messages.Text(would) != "would limit gpu-r01-01 to 3000 W through Redfish PowerLimit; it draws 5000 W now, and its limit is none" {
		t.Errorf("%q %v", messages.Text(would), err)
	}
	r.limit[name(1)] = "4000"
	does("cap_power", "a1", "is limited to 3000 W")
	does("cap_power", "a2", "is limited to 3000 W") // once more: what was before stays known
	does("uncap_power", "a3", "is 4000 W again")
	if got := r.limits()[name(1)]; got != "4000" {
		t.Errorf("the limit is %q", got)
	}
	does("cap_power", "a4", "is limited to 3000 W")
	r.limit[name(1)] = "3500" // somebody else
	set := r.set
	if err := all["uncap_power"].Apply(t.Context(), step("uncap_power", "a5")); err == nil || r.set != set {
		t.Errorf("%v, and a limit of somebody else was touched", err)
	}
	if v, how, err := all["uncap_power"].Verify(t.Context(), step("uncap_power", "a5")); v != Verified || err != nil || !strings.Contains(messages.Text(how), "not ours") {
		t.Errorf("%d %q %v", v, messages.Text(how), err)
	}
	if so, _, err := all["uncap_power"].(Settler).Settled(t.Context(), step("uncap_power", "a6")); !so || err != nil {
		t.Errorf("%t %v", so, err)
	}
	r.lies[name(1)] = true
	if err := all["cap_power"].Apply(t.Context(), step("cap_power", "a7")); err != nil {
		t.Fatal(err)
	}
	if v, how, _ := all["cap_power"].Verify(t.Context(), step("cap_power", "a7")); v != Pending || !strings.Contains(messages.Text(how), "is 3500 W, not 3000 W") {
		t.Errorf("%d %q", v, messages.Text(how))
	}
}
