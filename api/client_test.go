package api_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"auspex/api/access"
	"auspex/client"
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
