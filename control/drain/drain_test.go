package drain_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"auspex/control"
	"auspex/control/drain"
)

// kube is a scheduler that knows neither Slurm's states nor its way of draining: a
// node is schedulable or not, pods leave one by one, and why it was cordoned stands
// in an annotation.
type kube struct {
	unschedulable, ready bool
	annotation           string
	pods                 int // beside those of daemons
}

type cluster map[string]*kube

func (c cluster) Node(_ context.Context, name string) (drain.Node, error) {
	n, ok := c[name]
	if !ok {
		return drain.Node{}, control.ErrCannot
	}
	states := "Ready"
	if !n.ready {
		states = "NotReady"
	}
	return drain.Node{Cordoned: n.unschedulable, Busy: n.pods > 0, Away: !n.ready, Reason: n.annotation, StateText: states}, nil
}

func (c cluster) Drain(_ context.Context, name, reason string) error {
	c[name].unschedulable, c[name].annotation = true, reason
	return nil
}

func (c cluster) Return(_ context.Context, name string) error {
	c[name].unschedulable, c[name].annotation = false, ""
	return nil
}

func (c cluster) Jobs(_ context.Context, name string) ([]string, error) {
	return slices.Repeat([]string{"a pod"}, c[name].pods), nil
}

func TestDrainedMeansCordonedAndNothingLeft(t *testing.T) {
	c := cluster{"n": {ready: true, pods: 2}}
	d, s := drain.Drain{Scheduler: c}, control.Step{ID: "act-1", Server: "n"}
	verdict := func() control.Verdict {
		v, _, err := d.Verify(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := verdict(); v != control.Pending {
		t.Error("verified before anything was asked")
	}
	if err := d.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for ; c["n"].pods > 0; c["n"].pods-- {
		if v := verdict(); v != control.Pending {
			t.Errorf("drained with %d pods", c["n"].pods)
		}
	}
	if v := verdict(); v != control.Verified {
		t.Error("not drained when all pods are gone")
	}
	u := drain.Uncordon{Scheduler: c}
	if err := u.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c["n"].ready = false
	if v, _, _ := u.Verify(t.Context(), s); v != control.Pending {
		t.Error("a node that is not ready counts as back in the pool")
	}
	c["n"].ready = true
	if v, _, _ := u.Verify(t.Context(), s); v != control.Verified {
		t.Error("a node that is ready is not back in the pool")
	}
}

func TestWhatOthersDrainedIsLeftAlone(t *testing.T) {
	c := cluster{"theirs": {unschedulable: true, annotation: "ada: new cable"}, "free": {ready: true}}
	ctx := t.Context()
	if err := (drain.Drain{Scheduler: c}).Apply(ctx, control.Step{ID: "a", Server: "theirs"}); !errors.Is(err, control.ErrAlready) {
		t.Error(err)
	}
	if err := (drain.Uncordon{Scheduler: c}).Apply(ctx, control.Step{ID: "a", Server: "theirs"}); !errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
	if got := c["theirs"]; got.annotation != "ada: new cable" || !got.unschedulable {
		t.Errorf("the node of others changed: %+v", got)
	}
	s := control.Step{ID: "act-1", Server: "free", Reason: "gpu.fallen_off_bus on free/gpu0"}
	if err := (drain.Drain{Scheduler: c}).Apply(ctx, s); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(c["free"].annotation, drain.Prefix+" act-1") {
		t.Error(c["free"].annotation)
	}
	if err := (drain.Uncordon{Scheduler: c}).Apply(ctx, s); err != nil || c["free"].unschedulable {
		t.Error(err, c["free"])
	}
}

func TestAnUnknownNodeCannotBeDrained(t *testing.T) {
	if _, err := (drain.Drain{Scheduler: cluster{}}).Plan(t.Context(), control.Step{Server: "nope"}); !errors.Is(err, control.ErrCannot) {
		t.Error(err)
	}
}
