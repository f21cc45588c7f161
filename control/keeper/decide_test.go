package keeper

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/store/configs"
	"auspex/schemas"
)

// part is a GPU, or a server with a BIOS, whose configuration a judge decides about, and a control that does
// what it is asked for.
type part struct {
	t    *testing.T
	cfg  Config
	mode string
	now  time.Time
	want configs.Wanted
	st   schemas.ConfigState

	is, coming map[string]string
	err        error
	closed     bool   // a maintenance window is open
	busy       bool   // another operation is under way
	outcome    string // of what control is asked for; it takes effect where that is done
	refused    string // by which sentence
	stubborn   bool   // done or not, nothing changes
	asked      []request
	told       []string // events
}

func newPart(t *testing.T, want map[string]string, is map[string]string) *part {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Enforce = true
	return &part{
		t: t, cfg: cfg, mode: schemas.ModeEnforce, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), outcome: schemas.ActionDone, is: is,
		want: configs.Wanted{Subject: "u", Kind: schemas.ConfigOfGPU, Name: "a/gpu0", Server: "a", Version: 1, By: "li", Step: configs.SetGPU, With: want},
	}
}

func bios(t *testing.T, want map[string]string, is map[string]string) *part {
	t.Helper()
	p := newPart(t, want, is)
	p.want.Kind, p.want.Name, p.want.Step, p.coming = schemas.ConfigOfServer, "a", configs.SetBIOS, maps.Clone(is)
	return p
}

// look reads once, and has control end what it is asked for before the next look.
func (p *part) look(after time.Duration) {
	p.t.Helper()
	p.now = p.now.Add(after)
	l := look{
		now: p.now, want: p.want, read: true, err: p.err, mode: p.mode, busy: p.busy,
		window: func() (schemas.Sentence, error) {
			if p.closed {
				return messages.New(messages.InWindow, messages.Args{"window": "w", "by": "ana", "server": "a", "until": "later"}), nil
			}
			return schemas.Sentence{}, nil
		},
	}
	if p.err == nil {
		l.reading = &control.Reading{Has: maps.Clone(p.is), Coming: maps.Clone(p.coming)}
	}
	if p.st.Operation != "" {
		l.action = &schemas.Action{ID: p.st.Operation, State: p.outcome, Detail: "because"}
		if p.refused != "" {
			l.action.DetailSentence = &schemas.Sentence{ID: p.refused}
		}
	}
	j := judge{cfg: p.cfg, st: &p.st, look: l}
	do, err := j.decide()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, ev := range p.st.Untold {
		p.told = append(p.told, fmt.Sprintf("%s %s %s", ev.Type, ev.Code, ev.State))
		if ev.Resource != p.want.Name || ev.ID == "" || ev.Message == "" {
			p.t.Errorf("%+v", ev)
		}
	}
	p.st.Untold = nil
	if do == nil {
		return
	}
	p.asked = append(p.asked, *do)
	p.st.Operation = fmt.Sprintf("op%d", len(p.asked))
	if p.outcome != schemas.ActionDone || p.stubborn {
		return
	}
	for name, v := range do.with {
		switch {
		case name == "reset":
		case p.coming != nil && do.with["reset"] == "":
			p.coming[name] = v
		case p.coming != nil:
			p.coming[name], p.is[name] = v, v
		default:
			p.is[name] = v
		}
	}
}

// looks reads n times.
func (p *part) looks(n int, each time.Duration) {
	p.t.Helper()
	for range n {
		p.look(each)
	}
}

func (p *part) expect(state string, asked int, told ...string) {
	p.t.Helper()
	if p.st.State != state || len(p.asked) != asked {
		p.t.Errorf("%s (%s) after %d requests, want %s after %d", p.st.State, messages.Text(p.st.Sentence), len(p.asked), state, asked)
	}
	if d := cmp.Diff(told, p.told); d != "" {
		p.t.Error(d)
	}
	if text := messages.Text(p.st.Sentence); strings.ContainsAny(text, "{}") {
		p.t.Errorf("arguments are missing: %s", text)
	}
}

const minute = time.Minute

func TestAVersionIsAppliedOnceAndThenOnlyRead(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500", "persistence": "true"}, map[string]string{"power_limit": "700", "persistence": "False"})
	p.look(0)
	p.expect(schemas.ConfigApplying, 1)
	if d := cmp.Diff(request{configs.SetGPU, p.want.With, "version 1 of its configuration"}, p.asked[0], cmp.AllowUnexported(request{})); d != "" {
		t.Error(d)
	}
	p.looks(30, 10*minute)
	p.expect(schemas.ConfigInForce, 1)
	if p.st.Applied != 1 || p.st.AppliedAt.IsZero() || len(p.st.Before) != 0 {
		t.Errorf("%+v", p.st)
	}
}

func TestNothingIsAskedForWhereItMayNotBe(t *testing.T) {
	for name, change := range map[string]func(*part){
		"control does not keep": func(p *part) { p.cfg.Enforce = false },
		"a person approves":     func(p *part) { p.mode = schemas.ModeApprove },
		"it observes":           func(p *part) { p.mode = schemas.ModeObserve },
		"a window is open":      func(p *part) { p.closed = true },
		"another is under way":  func(p *part) { p.busy = true },
		"nobody can read it":    func(p *part) { p.err = errors.New("no route") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700"})
			change(p)
			p.looks(5, 10*minute)
			p.expect(schemas.ConfigPending, 0)
		})
	}
	p := newPart(t, nil, map[string]string{})
	p.want.Err = &configs.UnsetError{Field: "driver_config.vgpu", Detail: "no driver of control sets it"}
	p.look(0)
	p.expect(schemas.ConfigCannot, 0)
	p = newPart(t, map[string]string{"power_limit": "500"}, nil)
	p.err = fmt.Errorf("%w: no driver", control.ErrCannot)
	p.look(0)
	p.expect(schemas.ConfigCannot, 0)
}

func TestADriftIsConfirmedToldOnceAndMended(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700"})
	p.looks(4, minute)
	p.expect(schemas.ConfigInForce, 1)
	p.is["power_limit"] = "700" // the server has started anew
	p.look(10 * minute)
	p.expect(schemas.ConfigInForce, 1) // it may still be starting
	p.is["power_limit"] = "500"
	p.look(minute)
	p.expect(schemas.ConfigInForce, 1)
	p.is["power_limit"] = "700"
	p.looks(2, 10*minute)
	p.expect(schemas.ConfigApplying, 2, "config.drift power_limit raised")
	p.looks(3, minute)
	p.expect(schemas.ConfigInForce, 2, "config.drift power_limit raised", "config.drift power_limit cleared")
}

func TestADriftThatIsNotMendedIsToldOnce(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "500"})
	p.cfg.Enforce = false
	p.look(0)
	p.is["power_limit"] = "600"
	p.looks(50, 10*minute)
	p.expect(schemas.ConfigDrifted, 0, "config.drift power_limit raised")
	p.is["power_limit"] = "650" // another change
	p.looks(50, 10*minute)
	p.expect(schemas.ConfigDrifted, 0, "config.drift power_limit raised", "config.drift power_limit raised")
	if len(p.st.Drifts) != 1 || p.st.Drifts[0].Found != "650" {
		t.Errorf("%+v", p.st.Drifts)
	}
}

func TestADriftThatFlapsStaysRaisedAndIsLeftToAPerson(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "500"})
	p.look(0)
	for range 12 { // somebody else sets it back, again and again
		p.is["power_limit"] = "700"
		p.looks(6, 5*minute)
	}
	if n := len(p.asked); n != p.cfg.Attempts {
		t.Errorf("%d requests within 6 hours, want %d", n, p.cfg.Attempts)
	}
	if p.st.State != schemas.ConfigHeld || p.told[len(p.told)-1] != "config.failed held raised" {
		t.Errorf("%s %v", p.st.State, p.told)
	}
	before := len(p.told)
	p.looks(1000, 10*minute) // for a week
	if len(p.asked) != p.cfg.Attempts || len(p.told) != before {
		t.Errorf("%d requests, %v", len(p.asked), p.told)
	}
	p.is["power_limit"] = "500" // a person has looked
	p.looks(10, 10*minute)
	if p.st.State != schemas.ConfigInForce || p.st.Failure != "" || len(p.st.Drifts) != 0 {
		t.Errorf("%s %+v", p.st.State, p.st.Drifts)
	}
}

func TestAVersionThatIsNotTakenIsRolledBack(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700", "ecc": "true"})
	p.looks(3, minute)
	p.expect(schemas.ConfigInForce, 1)
	p.want.Version, p.want.With = 2, map[string]string{"power_limit": "400", "ecc": "false"}
	p.outcome = schemas.ActionFailed
	p.is["power_limit"] = "400" // half of it was taken
	p.looks(32, minute)         // attempts after 0, 10 and 30 minutes, and the end of the last
	if n := len(p.asked) - 1; n != p.cfg.Attempts {
		t.Fatalf("%d attempts, want %d", n, p.cfg.Attempts)
	}
	p.outcome = schemas.ActionDone
	p.looks(5, 10*minute)
	if d := cmp.Diff(request{configs.SetGPU, map[string]string{"power_limit": "500", "ecc": "true"}, "back from version 2 of its configuration"},
		p.asked[len(p.asked)-1], cmp.AllowUnexported(request{})); d != "" {
		t.Error(d)
	}
	p.expect(schemas.ConfigRolledBack, 5, "config.failed rolled_back raised")
	p.looks(1000, 10*minute)
	p.expect(schemas.ConfigRolledBack, 5, "config.failed rolled_back raised")
	p.is["power_limit"] = "700" // what was before is kept
	p.looks(5, 10*minute)
	p.expect(schemas.ConfigRolledBack, 6, "config.failed rolled_back raised", "config.drift power_limit raised", "config.drift power_limit cleared")
	p.is["power_limit"], p.is["ecc"] = "400", "false" // a person has applied it
	p.look(10 * minute)
	p.expect(schemas.ConfigInForce, 6, "config.failed rolled_back raised", "config.drift power_limit raised", "config.drift power_limit cleared", "config.failed rolled_back cleared")
	if p.st.Applied != 2 {
		t.Errorf("%+v", p.st)
	}
}

func TestARollBackThatFailsIsLeftToAPerson(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700"})
	p.outcome = schemas.ActionUnknown
	p.look(0)
	p.is["power_limit"] = "620"
	p.looks(1000, 10*minute)
	p.expect(schemas.ConfigHeld, p.cfg.Attempts+1, "config.failed rolled_back raised", "config.failed rolled_back cleared", "config.failed held raised")
	p.want.Version, p.want.With = 2, map[string]string{"power_limit": "620"}
	p.look(minute)
	p.expect(schemas.ConfigInForce, p.cfg.Attempts+1,
		"config.failed rolled_back raised", "config.failed rolled_back cleared", "config.failed held raised", "config.failed held cleared")
}

func TestARefusalCountsAsNoAttempt(t *testing.T) {
	p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700"})
	p.outcome = schemas.ActionRefused
	p.looks(6*24, 10*minute)
	if n := len(p.asked); n < 6 || n > 15 {
		t.Errorf("%d requests in a day; the pause doubles to 4 hours", n)
	}
	if p.st.State != schemas.ConfigPending || len(p.st.Tries) > 1 || len(p.told) != 0 {
		t.Errorf("%+v %v", p.st, p.told)
	}
	p.outcome = schemas.ActionDone
	p.looks(50, 10*minute)
	if p.st.State != schemas.ConfigInForce {
		t.Errorf("%s", messages.Text(p.st.Sentence))
	}
}

func TestABIOSThatNeverTakesASettingIsNotRestartedForEver(t *testing.T) {
	p := bios(t, map[string]string{"SMT": "off"}, map[string]string{"SMT": "on"})
	p.cfg.Reset, p.stubborn = true, true
	p.looks(1000, 10*minute)
	resets := 0
	for _, r := range p.asked {
		if r.with["reset"] == "true" {
			resets++
		}
	}
	if resets != p.cfg.Attempts {
		t.Errorf("%d restarts in a week, want %d", resets, p.cfg.Attempts)
	}
	p.expect(schemas.ConfigRolledBack, p.cfg.Attempts, "config.failed rolled_back raised")
}

func TestABIOSSettingWaitsForARestartOfSomebodyElse(t *testing.T) {
	p := bios(t, map[string]string{"SMT": "off"}, map[string]string{"SMT": "on"})
	p.looks(1000, 10*minute)
	p.expect(schemas.ConfigAwaits, 1)
	if p.asked[0].with["reset"] != "" {
		t.Errorf("%+v", p.asked[0])
	}
	maps.Copy(p.is, p.coming)
	p.look(10 * minute)
	p.expect(schemas.ConfigInForce, 1)
}

// Whatever happens, a version is tried no more often than it may be, events come in pairs, and once the world
// stays as it is to be the state says so.
func TestAnythingMayHappen(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newPart(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700"})
		if seed%2 == 1 {
			p = bios(t, map[string]string{"power_limit": "500"}, map[string]string{"power_limit": "700"})
			p.cfg.Reset = seed%4 == 1
		}
		outcomes := []string{
			schemas.ActionDone, schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionRefused, schemas.ActionCancelled, schemas.ActionRunning,
		}
		for range 300 {
			p.outcome, p.stubborn = outcomes[r.IntN(len(outcomes))], r.IntN(4) == 0
			p.closed, p.busy, p.err = r.IntN(8) == 0, r.IntN(8) == 0, nil
			switch r.IntN(8) {
			case 0:
				p.err = errors.New("no route")
			case 1:
				p.is["power_limit"] = strconv.Itoa(500 + 100*r.IntN(3))
			case 2:
				maps.Copy(p.is, p.coming)
			case 3:
				if r.IntN(10) == 0 {
					p.want.Version++
					p.want.With = map[string]string{"power_limit": strconv.Itoa(400 + 100*r.IntN(3))}
				}
			}
			p.look(time.Duration(1+r.IntN(20)) * minute)
			if len(p.st.Tries) > p.cfg.Attempts {
				t.Fatalf("seed %d: %d tries", seed, len(p.st.Tries))
			}
		}
		p.outcome, p.stubborn, p.closed, p.busy, p.err = schemas.ActionDone, false, false, false, nil
		p.is["power_limit"] = p.want.With["power_limit"]
		for range 400 {
			p.look(10 * minute)
			maps.Copy(p.is, map[string]string{"power_limit": p.want.With["power_limit"]})
		}
		if p.st.State != schemas.ConfigInForce || len(p.st.Drifts) != 0 || p.st.Failure != "" {
			t.Fatalf("seed %d: %s (%s) %+v", seed, p.st.State, messages.Text(p.st.Sentence), p.st.Drifts)
		}
		open := map[string]bool{}
		for _, ev := range p.told {
			what, state := ev[:strings.LastIndex(ev, " ")], ev[strings.LastIndex(ev, " ")+1:]
			if state == schemas.StateCleared && !open[what] {
				t.Fatalf("seed %d: %s ended twice: %v", seed, what, p.told)
			}
			open[what] = state == schemas.StateRaised
		}
		for what, is := range open {
			if is {
				t.Errorf("seed %d: %s stands: %v", seed, what, p.told)
			}
		}
	}
}

// TestASettingThatTheDeviceDoesNotHaveIsRefusedOnceAVersion asks for a misspelt attribute once, says so in the device's own
// words beside the drift, and asks again for the next version.
func TestASettingThatTheDeviceDoesNotHaveIsRefusedOnceAVersion(t *testing.T) {
	for id, again := range map[string]bool{messages.PeerError: false, messages.BadWith: false, messages.BusyRepair: true} {
		p := bios(t, map[string]string{"BotMode": "Uefi"}, map[string]string{"BootMode": "Legacy"})
		p.outcome, p.refused = schemas.ActionRefused, id
		for range 2 * 24 {
			p.look(time.Hour)
		}
		if more := len(p.asked) > 1; more != again || len(p.asked) == 0 {
			t.Errorf("%s: asked %d times", id, len(p.asked))
		}
		if said := messages.Text(p.st.Sentence); again == (p.st.State == schemas.ConfigCannot && strings.Contains(said, "because")) {
			t.Errorf("%s: %s, %q", id, p.st.State, said)
		}
		if told := slices.ContainsFunc(p.told, func(e string) bool { return strings.Contains(e, schemas.EventConfigFailed) }); told == again {
			t.Errorf("%s: told %v", id, p.told)
		}
		before := len(p.asked)
		p.want.Version, p.want.With = 2, map[string]string{"BootMode": "Uefi"}
		p.look(time.Hour)
		p.look(time.Hour)
		if len(p.asked) != before+1 {
			t.Errorf("%s: another version was asked for %d times", id, len(p.asked)-before)
		}
	}
}
