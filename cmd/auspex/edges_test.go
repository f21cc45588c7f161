package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/internal/bus"
	"auspex/internal/store/audit"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// dampSite has four air units, each of which cools the four servers of a rack.
func dampSite() schemas.Topology {
	t := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc", Kind: schemas.KindSite}}}
	for r := range 4 {
		rack, air := fmt.Sprint("r", r), fmt.Sprint("air", r)
		t.Resources = append(t.Resources, schemas.Resource{ID: rack, Kind: schemas.KindRack, Parent: "dc"},
			schemas.Resource{ID: air, Kind: schemas.KindCRAC, Parent: "dc"})
		for n := range 4 {
			id := fmt.Sprintf("s%d%d", r, n)
			t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: schemas.KindServer, Parent: rack})
			t.Links = append(t.Links, schemas.Link{From: air, To: id, Kind: schemas.LinkCools})
		}
	}
	return t
}

func dampAlert(id, typ, resource string, at time.Time) schemas.Alert {
	return schemas.Alert{Event: schemas.Event{
		ID: id, Time: at, Observed: at, Source: schemas.SourceRedfish, Resource: resource, Type: typ, Severity: schemas.SeverityCritical,
		State: schemas.StateRaised,
	}, Status: schemas.AlertFiring}
}

// damp is an air unit that fails, after which servers report what no record knows.
func damp(id string, unit int, at time.Time) []schemas.Alert {
	out := []schemas.Alert{dampAlert(id, schemas.EventCRACFailure, fmt.Sprint("air", unit), at)}
	for n, after := range []time.Duration{3 * time.Minute, 4 * time.Minute, 5 * time.Minute} {
		out = append(out, dampAlert(fmt.Sprint(id, "d", n), "damp.high", fmt.Sprintf("s%d%d", unit, n), at.Add(after)))
	}
	return out
}

// TestAnEdgeIsAcceptedOverHTTPAndTakenBack is the whole way round: lags counted in the alerts
// of a site, a proposal, an acceptance by a person, storms before and after, a restart, an
// export, and the acceptance taken back. Nobody else accepts anything.
func TestAnEdgeIsAcceptedOverHTTPAndTakenBack(t *testing.T) {
	site := newLiveSite(t, dampSite())
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Now().UTC().Add(-40 * 24 * time.Hour).Truncate(time.Second)
	for n := range 20 {
		at := start.Add(time.Duration(n) * 40 * time.Hour)
		list := damp(fmt.Sprint("h", n), n%4, at)
		list = append(list, dampAlert(fmt.Sprint("x", n), "damp.high", fmt.Sprintf("s%d3", rng.IntN(4)), at.Add(9*time.Hour)))
		for _, a := range list {
			if err := site.records.PutAlert(ctx, a); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out := site.auspex("learn", "edges"); !strings.Contains(out, "cooling.air_supply") || !strings.Contains(out, "20 of 20") {
		t.Errorf("the table is\n%s", out)
	}
	site.auspex("learn", "edges") // again, which changes nothing
	list := func() (p schemas.EdgeProposal, parameters int64) {
		t.Helper()
		var answer struct {
			Items      []schemas.EdgeProposal
			Parameters int64
		}
		site.call(http.MethodGet, "learning/edges", "", &answer)
		if len(answer.Items) != 1 {
			t.Fatalf("%d proposals: %+v", len(answer.Items), answer.Items)
		}
		return answer.Items[0], answer.Parameters
	}
	p, parameters := list()
	if p.State != schemas.EdgeOpen || parameters != 0 || p.Cause != schemas.EventCRACFailure || p.Effect != "damp.high" ||
		p.Causes[0].Way != "cools:server" || p.Causes[0].Shown != 20 || p.Causes[0].Lift < 10 || len(p.Causes[0].Examples) == 0 || p.Causes[0].Examples[0].Effects[0] == "" {
		t.Fatalf("proposed with %d in force: %+v", parameters, p)
	}
	// The causes to which the storm of an air unit comes, with how many events each.
	when := time.Now().UTC().Add(-11 * time.Hour)
	publish := func(id string, unit int) {
		t.Helper()
		when = when.Add(time.Hour)
		for _, a := range damp(id, unit, when) {
			doc, err := json.Marshal(a)
			if err == nil {
				err = site.records.PutAlert(ctx, a)
			}
			if err == nil {
				err = site.bus.Publish(ctx, bus.Message{Topic: schemas.TopicAlerts, Key: a.Resource, Value: doc})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	comesTo := func(what, id string, want map[string]int) {
		t.Helper()
		waittest.Until(t, func() error {
			var answer struct{ Items []schemas.Incident }
			site.call(http.MethodGet, "incidents?limit=100", "", &answer)
			got := map[string]int{}
			for _, i := range answer.Items {
				if i.MergedInto != "" {
					continue
				}
				var whole schemas.Incident
				site.call(http.MethodGet, "incidents/"+i.ID, "", &whole)
				for _, e := range whole.Events {
					if strings.HasPrefix(e, id) {
						got[whole.RootCause.Fault]++
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%s: storm %s comes to %v, want %v", what, id, got, want)
			}
			return nil
		})
	}
	before := map[string]int{"cooling.air_supply": 1, schemas.FaultUnknown: 3}
	after := map[string]int{"cooling.air_supply": 4}
	publish("one", 0)
	comesTo("nobody accepted it", "one", before)

	path := "learning/edges/" + p.ID + "/decisions"
	refused := func(who asker, body string, status int) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, who.url+"api/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+who.token)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s: %d %s, want %d", body, res.StatusCode, text, status)
		}
	}
	ann := site.as("eve", access.RoleEngineer)
	refused(site.as("bob", access.RoleViewer), `{"decision":"accepted","reason":"x"}`, http.StatusForbidden)
	refused(ann, `{"decision":"accepted","reason":" "}`, http.StatusBadRequest)
	refused(ann, `{"decision":"maybe","reason":"x"}`, http.StatusBadRequest)
	refused(ann, `{"decision":"accepted","reason":"x","fault":"power.feed_loss"}`, http.StatusBadRequest)
	refused(ann, `{"decision":"withdrawn","reason":"x"}`, http.StatusConflict)
	if p, parameters = list(); p.State != schemas.EdgeOpen || parameters != 0 {
		t.Fatalf("what was refused is in force: %d, %+v", parameters, p)
	}
	site.call(http.MethodPost, path, `{"decision":"declined","reason":"perhaps a door"}`, &p)
	if p.State != schemas.EdgeDeclined || p.Decision.Version != 0 {
		t.Errorf("declined: %+v", p)
	}
	site.call(http.MethodPost, path, `{"decision":"accepted","reason":"the units dry the air"}`, &p)
	if p.State != schemas.EdgeAccepted || p.Decision.Version != 1 || p.Decision.Author != "ann" || p.Decision.Fault != "cooling.air_supply" {
		t.Errorf("accepted: %+v", p.Decision)
	}
	refused(ann, `{"decision":"accepted","reason":"x"}`, http.StatusConflict)
	site.auspex("learn", "edges") // new counts leave what was accepted
	if p, parameters = list(); p.State != schemas.EdgeAccepted || parameters != 1 {
		t.Errorf("%d in force: %+v", parameters, p)
	}
	comesTo("what is open is decided anew", "one", after)
	site.stop()
	site.start()
	publish("two", 1)
	comesTo("after a restart", "two", after)

	// The version goes where parameters go.
	file := filepath.Join(site.data, "learned.json")
	site.auspex("learn", "export", "1", "--out", file)
	storm, inventory := filepath.Join(site.data, "events.jsonl"), filepath.Join(site.data, "topology.json")
	var lines strings.Builder
	for _, a := range append(damp("z", 2, start), dampAlert("late", "damp.high", "s23", start.Add(10*time.Minute))) {
		doc, err := json.Marshal(a.Event)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(doc, '\n'))
	}
	doc, err := json.Marshal(dampSite())
	if err == nil {
		err = os.WriteFile(inventory, doc, 0o600)
	}
	if err == nil {
		err = os.WriteFile(storm, []byte(lines.String()), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	replay := []string{"replay", "--topology", inventory, "--events", storm, "--out", "-"}
	if out := offline(t, replay...); !strings.Contains(out, `"`+schemas.FaultUnknown+`"`) {
		t.Errorf("by the records:\n%s", out)
	}
	if out := offline(t, append(replay, "--parameters", file)...); strings.Contains(out, `"`+schemas.FaultUnknown+`"`) {
		t.Errorf("as accepted:\n%s", out)
	}
	if out := site.auspex("learn", "versions"); !strings.Contains(out, "EDGES") {
		t.Errorf("versions:\n%s", out)
	}

	site.call(http.MethodPost, path, `{"decision":"withdrawn","reason":"it was the door after all"}`, &p)
	if p, parameters = list(); p.State != schemas.EdgeWithdrawn || parameters != 2 {
		t.Errorf("%d in force: %+v", parameters, p)
	}
	comesTo("taken back", "two", before)
	publish("three", 2)
	comesTo("taken back", "three", before)
	site.auspex("learn", "accept", p.ID, "--reason", "by command")
	comesTo("accepted by command", "three", after)
	site.auspex("learn", "take-back", p.ID, "--reason", "by command")
	comesTo("taken back by command", "three", before)
	if n, err := audit.Verify(ctx, site.db); err != nil || n < 5 {
		t.Errorf("%d rows in the audit, error %v", n, err)
	}
}

// offline runs a command over files.
func offline(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := command(t.Context(), args, IO{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
		t.Fatalf("auspex %s: exit status %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}
