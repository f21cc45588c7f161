package api_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/client"
	"auspex/internal/store/allocations"
	"auspex/internal/store/audit"
	"auspex/schemas"
)

// TestTheTypedClientAsksTheServer: what is made from the document is what the server takes and answers.
func TestTheTypedClientAsksTheServer(t *testing.T) {
	w := start(t, true)
	c, err := client.New(client.Config{URL: w.base, Token: w.tokens[access.RoleAdmin]})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	me, err := c.GetMe(ctx)
	if err != nil || me.Role != access.RoleAdmin {
		t.Fatalf("%+v %v", me, err)
	}
	for _, name := range []string{"vision", "speech", "robots"} {
		var at string
		made, err := c.CreateTeam(ctx, client.NewTeam{Name: name}, client.Location(&at))
		if err != nil || made.Name != name || at == "" {
			t.Fatalf("%+v at %q: %v", made, at, err)
		}
	}
	var names []string
	for team, err := range c.ListTeams(ctx, client.ListTeamsParams{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, team.Name)
	}
	if !slices.Equal(names, []string{"robots", "speech", "vision"}) {
		t.Errorf("pages of two: %v", names)
	}

	// The same key twice is one team.
	first, err := c.CreateTeam(ctx, client.NewTeam{Name: "once"}, client.Key("k1"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.CreateTeam(ctx, client.NewTeam{Name: "once"}, client.Key("k1")); err != nil || again.ID != first.ID {
		t.Errorf("%+v %v", again, err)
	}

	// A change of a state that is no more is refused; what is left out stays.
	var tag string
	if _, err = c.GetTeam(ctx, first.ID, client.ETag(&tag)); err != nil || tag == "" {
		t.Fatalf("%q %v", tag, err)
	}
	changed, err := c.UpdateTeam(ctx, first.ID, client.ChangedTeam{Description: new("of us")}, client.IfMatch(tag))
	if err != nil || changed.Name != "once" || changed.Description != "of us" {
		t.Errorf("%+v %v", changed, err)
	}
	_, err = c.UpdateTeam(ctx, first.ID, client.ChangedTeam{Description: new("")}, client.IfMatch(tag))
	if p := (*client.Problem)(nil); !errors.As(err, &p) || p.Status != http.StatusPreconditionFailed {
		t.Errorf("%v", err)
	}

	// A refusal names the field.
	_, err = c.CreateTeam(ctx, client.NewTeam{})
	p := (*client.Problem)(nil)
	if !errors.As(err, &p) || p.Code == "" || len(p.Errors) == 0 || p.Errors[0].Field != "name" {
		t.Errorf("%+v", p)
	}
	if err := c.DeleteTeam(ctx, first.ID); err != nil {
		t.Error(err)
	}
	events, err := c.ListEventsPage(ctx, client.ListEventsParams{Limit: 1})
	if err != nil || len(events.Items) != 1 {
		t.Errorf("%+v %v", events, err)
	}
	for s, err := range c.ListResources(ctx, client.ListResourcesParams{Kind: "server"}) {
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.GetResource(ctx, s.ID); err != nil || got.Name != s.Name {
			t.Errorf("%+v %v", got, err)
		}
		break
	}
}

// TestWhatIsChangedInTheFirstMomentIsTold has a record changed as soon as a console serves.
func TestWhatIsChangedInTheFirstMomentIsTold(t *testing.T) {
	w := start(t, false)
	stream := w.lays(t).listens(t, w.tokens[access.RoleAdmin])
	until(t, stream, "the beginning", func(e told) bool { return e.event == "hello" })
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"red"}`)
	until(t, stream, "the new team", func(e told) bool { return e.event == "changed" && strings.Contains(e.data, `"teams"`) })
}

// TestAClientAllocatesFollowsAndReleases over a cable that breaks: the answer to what it asks for is lost, and
// so are answers while it follows, and the stream in the middle of an event. It has one allocation in the
// end, and is told what it missed.
func TestAClientAllocatesFollowsAndReleases(t *testing.T) {
	w := gives(t)
	w.person(t, "li", access.RoleEngineer)
	cable, ctx := w.lays(t), t.Context()
	c, err := client.New(client.Config{URL: cable.URL, Token: w.tokens["li"]})
	if err != nil {
		t.Fatal(err)
	}
	of := func(topic string) func(told) bool {
		return func(e told) bool { return e.event == "changed" && strings.Contains(e.data, `"`+topic+`"`) }
	}
	stream := cable.listens(t, w.tokens["li"])
	until(t, stream, "the beginning", func(e told) bool { return e.event == "hello" })

	cable.cuts(http.MethodPost, "allocations", 0)
	_, made, err := c.CreateAllocation(ctx, client.NewAllocation{ServerIDs: []string{"gpu-r01-01"}, Purpose: "train"}, client.CreateAllocationParams{})
	if err != nil || made == nil || made.Allocation.Status != schemas.AllocationPending {
		t.Fatalf("%+v %v", made, err)
	}
	if n := cable.count(http.MethodPost, "allocations"); n != 2 {
		t.Errorf("what was asked for without an answer was sent %d times", n)
	}
	live := func() (ids []string) {
		t.Helper()
		for a, err := range c.ListAllocations(ctx, client.ListAllocationsParams{Live: new(true)}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a.ID)
		}
		return ids
	}
	id := made.Allocation.ID
	if ids := live(); !slices.Equal(ids, []string{id}) {
		t.Errorf("%v were made, and %s was answered", ids, id)
	}
	until(t, stream, "the new allocation", of("allocations"))

	path := "allocations/" + id
	cable.cuts(http.MethodGet, path, -1, 0)
	cable.breaksAt(`"allocations"`)
	moved := make(chan error, 1)
	go func() {
		for cable.count(http.MethodGet, path) < 3 && ctx.Err() == nil { // it has been found pending
			time.Sleep(10 * time.Millisecond) // between two looks at what came through the cable
		}
		store := allocations.New(w.db)
		_, err := store.Begin(ctx, "allocator", id)
		if err == nil {
			_, err = store.Activate(ctx, "allocator", id)
		}
		moved <- err
	}()
	followed := make(chan schemas.Allocation, 1)
	go func() {
		a, err := c.FollowAllocation(ctx, id)
		if err != nil {
			t.Errorf("a broken connection ends what is followed: %v", err)
		}
		followed <- a
	}()
	missed := until(t, stream, "a break within an event", func(e told) bool { return e.broke && e.id != "" })
	if a := <-followed; a.ID != id || a.Status != schemas.AllocationActive {
		t.Errorf("it was followed until %+v", a)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	if again := until(t, stream, "what was missed", func(e told) bool { return e.id == missed.id }); !of("allocations")(again) {
		t.Errorf("what was missed: %+v", again)
	}

	cable.cuts(http.MethodPost, path+"/stop", -1)
	ended, err := c.StopAllocation(ctx, id, nil)
	if err != nil || ended.Status != schemas.AllocationCompleted {
		t.Errorf("%+v %v", ended, err)
	}
	until(t, stream, "the end", of("allocations"))
	if ids := live(); len(ids) != 0 {
		t.Errorf("live after its release: %v", ids)
	}
	if a, err := c.FollowAllocation(ctx, id); err != nil || a.Status != schemas.AllocationCompleted {
		t.Errorf("%+v %v", a, err)
	}
}

// TestAnAnswerThatIsLostIsAskedForAgain: what the console did is done once, and is answered when it is asked
// for again, from Go and from Python.
func TestAnAnswerThatIsLostIsAskedForAgain(t *testing.T) {
	w := gives(t)
	w.proposesEdges(t)
	cable, ctx := w.lays(t), t.Context()
	c, err := client.New(client.Config{URL: cable.URL, Token: w.tokens[access.RoleAdmin]})
	if err != nil {
		t.Fatal(err)
	}
	w.person(t, "li", access.RoleEngineer)
	a := decode[apigen.CreatedAllocation](t, w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"server_id":"gpu-r01-01"}`)), http.StatusCreated).Allocation
	for path, do := range map[string]func() (any, error){
		"teams":                        func() (any, error) { return c.CreateTeam(ctx, client.NewTeam{Name: "red"}) },
		"incidents/i-1042/corrections": func() (any, error) { return c.CorrectIncident(ctx, "i-1042", client.NewCorrection{Verdict: "right"}) },
		"learning/edges/e-1/decisions": func() (any, error) {
			return c.DecideEdgeProposal(ctx, "e-1", client.NewEdgeDecision{Decision: "accepted", Reason: "seen"})
		},
		"allocations/" + a.ID + "/stop": func() (any, error) { return c.StopAllocation(ctx, a.ID, nil) },
	} {
		before := auditRows(t, w)
		cable.cuts(http.MethodPost, path, 0)
		if v, err := do(); err != nil {
			t.Errorf("%s: %+v %v", path, v, err)
		}
		if n := cable.count(http.MethodPost, path); n != 2 {
			t.Errorf("%s was sent %d times", path, n)
		}
		if n := auditRows(t, w) - before; n != 1 {
			t.Errorf("%s has %d rows of the audit", path, n)
		}
	}

	// A secret is kept sealed, so that whoever asked can be told it again.
	cable.cuts(http.MethodPost, "tokens", 0)
	if made, err := c.CreateToken(ctx, client.NewToken{Name: "grafana", Role: access.RoleViewer}); err != nil || made.Token == "" {
		t.Errorf("%+v %v", made, err)
	}
	if n := cable.count(http.MethodPost, "tokens"); n != 2 {
		t.Errorf("a token was asked for %d times", n)
	}

	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("AUSPEX_E2E") != "" {
			t.Fatal(err)
		}
		t.Skip("python3 is not installed; the Go client alone has tried it")
	}
	before := auditRows(t, w)
	cable.cuts(http.MethodPost, "teams", 0, -1)
	cable.cuts(http.MethodPost, "learning/edges/e-2/decisions", -1, 0)
	cmd := exec.CommandContext(ctx, python, "testdata/lost.py")
	lib, err := filepath.Abs("../client/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=1", "URL="+cable.URL, "TOKEN="+w.tokens[access.RoleAdmin])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the Python client: %v\n%s", err, out)
	}
	if n := auditRows(t, w) - before; n != 2 {
		t.Errorf("the Python client has %d rows of the audit", n)
	}
}

func auditRows(t *testing.T, w *world) int {
	t.Helper()
	n, err := audit.Verify(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}
