package control

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// posted is an alert as a webhook leaves it: it may claim anything but who posted it.
func posted(id, resource, typ string, r *rand.Rand) schemas.Alert {
	a := alert(id, resource, typ, schemas.SourceAPI, schemas.StateRaised, schemas.SeverityCritical, effect)
	a.Attrs = map[string]string{schemas.AttrExternal: "true", "collector": "dcgmexporter"}
	if r != nil && r.IntN(3) == 0 { // one of the two marks is enough
		delete(a.Attrs, schemas.AttrExternal)
	} else if r != nil && r.IntN(2) == 0 {
		a.Source = schemas.SourceKmsg
	}
	return a
}

// deaf are alerts of ours that are no sign of a fault of the part, and seen are those
// that are.
func deaf(id, server, part string, r *rand.Rand) schemas.Alert {
	switch r.IntN(6) {
	case 5: // the part is there, and does not know our password
		a := alert(id, part, schemas.EventAccessRefused, schemas.SourceCollector, schemas.StateRaised, schemas.SeverityError, effect)
		a.Attrs = map[string]string{"collector": schemas.SourceIPMI}
		return a
	case 0: // of a neighbour
		return alert(id, server+"/gpu7", "gpu.xid", schemas.SourceKmsg, "", schemas.SeverityCritical, effect)
	case 1: // of another server
		return alert(id, "gpu-r09-09/gpu2", "gpu.xid", schemas.SourceKmsg, "", schemas.SeverityCritical, effect)
	case 2: // it says that nothing is wrong
		return alert(id, part, "gpu.xid", schemas.SourceKmsg, "", schemas.SeverityInfo, effect)
	case 3: // a guess
		return alert(id, part, "gpu.xid", schemas.SourcePredict, "", schemas.SeverityCritical, effect)
	}
	return alert(id, server, "workload.failed", schemas.SourceScheduler, "", schemas.SeverityError, effect) // who reads no part
}

func seen(id, server, part string, r *rand.Rand) schemas.Alert {
	switch r.IntN(4) {
	case 0:
		return alert(id, part, "gpu.missing", schemas.SourceRule, schemas.StateRaised, schemas.SeverityWarning, effect)
	case 1:
		a := alert(id, server, "host.unreachable", schemas.SourceCollector, schemas.StateRaised, schemas.SeverityCritical, effect)
		a.Attrs = map[string]string{"collector": "dcgmexporter"}
		return a
	case 2:
		return alert(id, part, "gpu.thermal", schemas.SourceDCGM, schemas.StateCleared, schemas.SeverityError, effect)
	}
	return alert(id, part, "gpu.xid", schemas.SourceKmsg, "", schemas.SeverityCritical, effect)
}

const stormPolicy = `
budgets: {fleet: 1000, rack: 1000, per_hour: 1000}
breaker: {cases: 1000, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    max_evidence_age: 1h
    ladder:
      - {kind: drain, verify: 1m}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 1m, quiet: 30ms, quorum: 1}
      - {kind: uncordon, needs: [power_cycle], verify: 1m}
`

// TestNothingIsDestroyedOnTheWordOfStrangers posts what a forged or broken webhook
// could about a whole fleet, among alerts of our own: the servers whose fault a
// collector of ours saw are drained and cycled, the others stay in the pool and wait for
// a person, who reads why.
func TestNothingIsDestroyedOnTheWordOfStrangers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := newBench(t, schemas.ModeEnforce)
		writeFile(t, filepath.Join(b.dir, "policy.yaml"), stormPolicy)
		store := records.New(b.db)
		witnessed := map[string]bool{}
		for k := range 8 {
			server := fmt.Sprintf("gpu-r%02d-01", 1+k)
			inc := incident(server, server+"/gpu2", "gpu.fallen_off_bus")
			inc.Events = nil
			for e := range 1 + r.IntN(12) {
				id := fmt.Sprintf("%s-%d", server, e)
				a := posted(id, inc.RootCause.Resource, "gpu.xid", r)
				switch {
				case e > 0 && r.IntN(12) == 0:
					a = seen(id, server, inc.RootCause.Resource, r)
					witnessed[server] = true
				case r.IntN(3) == 0:
					a = deaf(id, server, inc.RootCause.Resource, r)
				}
				a.Server, a.Status = server, schemas.AlertResolved
				if err := store.PutAlert(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				inc.Events = append(inc.Events, id)
			}
			r.Shuffle(len(inc.Events), func(i, j int) { inc.Events[i], inc.Events[j] = inc.Events[j], inc.Events[i] })
			if err := store.PutIncident(t.Context(), inc); err != nil {
				t.Fatal(err)
			}
		}
		cycled := func(as []schemas.Action) map[string]schemas.Action { // or what is held before it
			out := map[string]schemas.Action{}
			for _, a := range as {
				if a.Kind == "power_cycle" || a.Kind == "drain" && out[a.Server].ID == "" {
					out[a.Server] = a
				}
			}
			return out
		}
		c := b.controller()
		as := b.until(c, func(as []schemas.Action) bool {
			n := 0
			for server, a := range cycled(as) {
				if a.Kind == "power_cycle" && a.State == schemas.ActionDone || a.State == schemas.ActionWaiting && !witnessed[server] {
					n++
				}
			}
			return n == 8
		})
		for server, a := range cycled(as) {
			said := ""
			for _, rail := range a.Rails {
				if rail.Name == railSeen {
					said = rail.Detail
				}
			}
			if witnessed[server] != (a.Kind == "power_cycle" && a.State == schemas.ActionDone) || !witnessed[server] && a.Kind != "drain" || !witnessed[server] && !strings.Contains(a.Detail, "a person must approve") {
				t.Errorf("seed %d: %s, witnessed %v: %s, %q (%q)", seed, server, witnessed[server], a.State, a.Detail, said)
			}
		}
		if got := len(b.w.cycles()); got != len(witnessed) {
			t.Errorf("seed %d: %d servers cycled, %d were witnessed", seed, got, len(witnessed))
		}
	}
}

// TestAPersonMayVouchForWhatNoCollectorSaw approves a step that is held, in both modes
// that act: it is done, once, and the record says on whose word.
func TestAPersonMayVouchForWhatNoCollectorSaw(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{schemas.ModeEnforce, schemas.ModeApprove} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode)
			writeFile(t, filepath.Join(b.dir, "policy.yaml"), stormPolicy)
			inc := incident("i1", part, "gpu.fallen_off_bus")
			a := posted("i1-e", part, "gpu.xid", nil)
			a.Status = schemas.AlertResolved
			if err := records.New(b.db).PutAlert(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if err := records.New(b.db).PutIncident(t.Context(), inc); err != nil {
				t.Fatal(err)
			}
			held := ""
			c := b.controller()
			as := b.until(c, func(as []schemas.Action) bool {
				for _, a := range as {
					if a.State != schemas.ActionWaiting {
						continue
					}
					if a.Kind == "power_cycle" || a.Kind == "drain" && !strings.Contains(held, "a person must approve") {
						held = a.Detail
					}
					b.intend(c, verbApprove, a)
				}
				return states(as)["uncordon"] == schemas.ActionDone
			})
			if !strings.Contains(held, "a person must approve") {
				t.Errorf("it was held with %q", held)
			}
			cycle := kind(as, "power_cycle")
			said := ""
			for _, r := range cycle.Rails {
				if r.Name == railSeen && r.OK {
					said = r.Detail
				}
			}
			if cycle.State != schemas.ActionDone || cycle.Actor != "ada" || !strings.Contains(said, "ada approved") || len(b.w.cycles()) != 1 {
				t.Errorf("%+v, %q", cycle, said)
			}
			rows, err := audit.New(b.db, c.d.Now).List(t.Context(), 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Verb == "intend" && (r.Kind == "power_cycle" || r.Kind == "drain") && r.Actor != "ada" {
					t.Errorf("%s decided", r.Actor)
				}
			}
		})
	}
}

// An alert that somebody posted neither ends a quiet time nor calls for a stronger step.
func TestWhatIsPostedAfterARepairIsNoSignOfThePart(t *testing.T) {
	w := newWard(part, schemas.KindGPU, schemas.ViewHost)
	w.reads("dcgmexporter", part, schemas.KindGPU, 5, 50)
	a := posted("late", part, "gpu.xid", nil)
	a.Observed = at(49)
	if f := w.judge(at(51), []schemas.Alert{a}, func(string) bool { return true }); !f.cured {
		t.Errorf("%s", messages.Text(f.observed))
	}
}

// A password that was changed during a repair says nothing of the part.
func TestRefusedCredentialsAreNoSignOfThePart(t *testing.T) {
	w := newWard(server, schemas.KindServer, schemas.ViewHost)
	w.reads("dcgmexporter", server, schemas.KindServer, 5, 50)
	w.event(server, "ipmi", schemas.EventAccessRefused, schemas.SeverityError, schemas.StateRaised, 40)
	a := alert("refused", server, schemas.EventAccessRefused, schemas.SourceCollector, schemas.StateRaised, schemas.SeverityError, at(40))
	if f := w.judge(at(51), []schemas.Alert{a}, func(string) bool { return true }); !f.cured {
		t.Errorf("%s", messages.Text(f.observed))
	}
}

// A policy that forgets to say that a step destroys is no way around, and what is posted
// takes no server out of the pool either.
func TestEveryKindOfStepThatDestroysOrTakesOutNeedsAWitness(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	k := &climb{Incident: "none", Subject: server, Target: part, Confidence: 1, Evidence: c.d.Now()}
	for kind, want := range map[string]bool{
		"reset_gpu": true, "reboot": true, "power_cycle": true, "ac_cycle": true, "reinstall": true, "wipe": true, "reset_bmc": true,
		"drain": true, "cordon": true, "uncordon": false, "ticket": false,
	} {
		rails, err := c.check(context.Background(), k, policy.Policy{Ladder: []policy.Rung{{Kind: kind}}}, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		held := false
		for _, r := range rails {
			held = held || r.Name == railSeen && !r.OK
		}
		if held != want {
			t.Errorf("%s without a witness: held %v, want %v", kind, held, want)
		}
	}
}

// A restart that does not help ends the signs of an incident; when they come again, in another, the ladder goes on by these.
func TestTheSameCauseInAnotherIncidentIsEvidence(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	first := incident("i1", part, "gpu.fallen_off_bus")
	k := &climb{Incident: "i1", Subject: server, Target: part, Fault: "gpu.fallen_off_bus", Touched: true}
	closed := first
	closed.Closed = &closed.Updated
	other := incident("i2", server+"/gpu5", "gpu.fallen_off_bus")
	b.keep(other)
	for _, i := range []schemas.Incident{first, closed, other} {
		c.consider(i)
	}
	if source, err := c.witness(t.Context(), k); err != nil || source != "" || c.stands(k) {
		t.Errorf("seen by %q: %v", source, err)
	}
	again := incident("i3", part, "gpu.fallen_off_bus")
	again.Updated = again.Updated.Add(time.Minute)
	b.keep(again)
	c.consider(again)
	if source, err := c.witness(t.Context(), k); err != nil || source == "" || !c.stands(k) || !k.Evidence.Equal(again.Updated) {
		t.Errorf("seen by %q, evidence of %s: %v", source, k.Evidence, err)
	}
}

// TestWhatHasClosedIsNoReason though the bus hands over once more what was said before it closed.
func TestWhatHasClosedIsNoReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	open := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
	closed := open
	closed.Updated = open.Updated.Add(time.Second)
	closed.Closed = &closed.Updated
	b.keep(closed)
	c.consider(open)
	if err := c.openDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state, _, err := c.store.hasCase(t.Context(), open.ID, open.RootCause.Resource); err != nil || state != "" {
		t.Errorf("its case is %q, %v", state, err)
	}
	// The same cause has come again since, and the record is on its way.
	open.Updated = closed.Updated.Add(time.Second)
	c.consider(open)
	if err := c.openDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state, _, err := c.store.hasCase(t.Context(), open.ID, open.RootCause.Resource); err != nil || state == "" {
		t.Errorf("no case is opened, %v", err)
	}
}
