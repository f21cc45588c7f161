package drain_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"auspex/control"
	"auspex/control/drain"
)

type cluster struct{ nodes map[string]*drain.Node }

func (c cluster) Node(_ context.Context, name string) (drain.Node, error) {
	n, ok := c.nodes[name]
	if !ok {
		return drain.Node{}, control.ErrCannot
	}
	return *n, nil
}

func (c cluster) Drain(_ context.Context, name, reason string) error {
	n := c.nodes[name]
	n.States, n.Reason = append(n.States, "DRAIN"), reason
	return nil
}

func (c cluster) Resume(_ context.Context, name string) error {
	c.nodes[name].States = []string{"IDLE"}
	return nil
}

func TestDrainedMeansNoJobIsLeft(t *testing.T) {
	for states, want := range map[string]bool{
		"IDLE": false, "IDLE DRAIN": true, "ALLOCATED DRAIN": false, "MIXED DRAIN": false, "IDLE DRAIN COMPLETING": false, "DOWN DRAIN": true,
	} {
		if got := (drain.Node{States: strings.Fields(states)}).Drained(); got != want {
			t.Errorf("%s: %v", states, got)
		}
	}
}

func TestWhatOthersDrainedIsLeftAlone(t *testing.T) {
	c := cluster{map[string]*drain.Node{"theirs": {States: []string{"IDLE", "DRAIN"}, Reason: "ada: new cable"}, "free": {States: []string{"IDLE"}}}}
	ctx := t.Context()
	if err := (drain.Drain{Scheduler: c}).Apply(ctx, control.Step{ID: "a", Server: "theirs"}); !errors.Is(err, control.ErrAlready) {
		t.Error(err)
	}
	if err := (drain.Uncordon{Scheduler: c}).Apply(ctx, control.Step{ID: "a", Server: "theirs"}); !errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
	if got := c.nodes["theirs"]; got.Reason != "ada: new cable" || !got.Is("DRAIN") {
		t.Errorf("the node of others changed: %+v", got)
	}
	s := control.Step{ID: "act-1", Server: "free", Reason: "gpu.fallen_off_bus on free/gpu0"}
	if err := (drain.Drain{Scheduler: c}).Apply(ctx, s); err != nil {
		t.Fatal(err)
	}
	if v, saw, err := (drain.Drain{Scheduler: c}).Verify(ctx, s); v != control.Verified || err != nil {
		t.Error(v, saw, err)
	}
	if !strings.HasPrefix(c.nodes["free"].Reason, drain.Prefix+" act-1") {
		t.Error(c.nodes["free"].Reason)
	}
	if err := (drain.Uncordon{Scheduler: c}).Apply(ctx, s); err != nil || c.nodes["free"].Is("DRAIN") {
		t.Error(err, c.nodes["free"])
	}
}

func TestAnUnknownNodeCannotBeDrained(t *testing.T) {
	if _, err := (drain.Drain{Scheduler: cluster{}}).Plan(t.Context(), control.Step{Server: "nope"}); !errors.Is(err, control.ErrCannot) {
		t.Error(err)
	}
}
