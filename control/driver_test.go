package control

import (
	"context"
	"errors"
	"strings"
	"testing"

	"auspex/control/messages"
	"auspex/schemas"
)

// scheduling is a driver of one scheduler, and counts what it is asked.
type scheduling struct {
	Servers

	asked map[string]int
	jobs  []string
}

type scheduled struct{ s *scheduling }

func (d *scheduling) Remediators(s Settings) (map[string]Remediator, error) {
	return d.Keep(s, map[string]Remediator{"drain": scheduled{d}, "uncordon": scheduled{d}})
}

func (r scheduled) Plan(_ context.Context, s Step) (schemas.Sentence, error) {
	return messages.New(messages.WouldReturn, messages.Args{"server": s.Server}), nil
}

func (r scheduled) Apply(_ context.Context, s Step) error {
	r.s.asked[s.Server]++
	return nil
}

func (r scheduled) Verify(_ context.Context, s Step) (Verdict, schemas.Sentence, error) {
	if r.s.asked[s.Server] > 1 {
		return Verified, schemas.Sentence{}, nil
	}
	return Pending, schemas.Sentence{}, nil
}

func (r scheduled) Pursue(_ context.Context, s Step) error {
	r.s.asked[s.Server]++
	return nil
}

func (r scheduled) Jobs(context.Context, string) ([]string, error) { return r.s.jobs, nil }

func TestEachServerGoesToItsScheduler(t *testing.T) {
	place := Settings{Resource: func(id string) (schemas.Resource, bool) {
		scheduler, _, ok := strings.Cut(id, "-")
		return schemas.Resource{ID: id, Attrs: schemas.AttrsOf(map[string]string{"scheduler": scheduler, "both": scheduler})}, ok
	}}
	slurm := &scheduling{Servers{"scheduler", []string{"slurm"}}, map[string]int{}, []string{"job-1"}}
	kube := &scheduling{Servers{"scheduler", []string{"k8s", "eks"}}, map[string]int{}, nil}
	more := &scheduling{Servers{"both", []string{"eks"}}, map[string]int{}, nil}
	all, err := Drivers{"slurm": slurm, "kubernetes": kube, "more": more}.Remediators(place)
	if err != nil {
		t.Fatal(err)
	}
	drain := all["drain"]
	for server, d := range map[string]*scheduling{"slurm-1": slurm, "k8s-1": kube} {
		s := Step{ID: "act-1", Kind: "drain", Server: server}
		if _, err := drain.Plan(t.Context(), s); err != nil {
			t.Error(err)
		}
		if err := errors.Join(drain.Apply(t.Context(), s), drain.(Pursuer).Pursue(t.Context(), s)); err != nil {
			t.Error(err)
		}
		if v, _, err := drain.Verify(t.Context(), s); err != nil || v != Verified || d.asked[server] != 2 {
			t.Errorf("%s: %d %v, asked %v", server, v, err, d.asked)
		}
		if jobs, err := drain.(Scheduler).Jobs(t.Context(), server); err != nil || len(jobs) != len(d.jobs) {
			t.Errorf("%s: %v %v", server, jobs, err)
		}
	}
	for server, none := range map[string]bool{"metal-1": true, "eks-1": false} {
		s := Step{ID: "act-1", Kind: "drain", Server: server}
		_, err := drain.Plan(t.Context(), s)
		applied := drain.Apply(t.Context(), s)
		_, jobs := drain.(Scheduler).Jobs(t.Context(), server)
		// Where nobody schedules, no job can be known; where two may, it is a mistake that holds what would end them.
		if err == nil || errors.Is(err, ErrCannot) != none || !errors.Is(applied, ErrRejected) || jobs == nil || errors.Is(jobs, ErrCannot) != none {
			t.Errorf("%s: %v, %v, %v", server, err, applied, jobs)
		}
	}
	if len(slurm.asked)+len(kube.asked)+len(more.asked) != 2 {
		t.Errorf("%v %v %v", slurm.asked, kube.asked, more.asked)
	}
}

func TestTwoSchedulersMustSayWhoseServersAre(t *testing.T) {
	of := func(attr string, is ...string) *scheduling {
		return &scheduling{Servers{attr, is}, map[string]int{}, nil}
	}
	for name, tc := range map[string]struct {
		a, b *scheduling
		want string
	}{
		"neither":          {of(""), of(""), "configure one of them, or say with servers of both which are whose"},
		"one":              {of("scheduler", "slurm"), of(""), "configure one of them"},
		"no values":        {of("scheduler"), of(""), "attr and is go together"},
		"an attribute not": {of("", "slurm"), of(""), "attr and is go together"},
	} {
		if _, err := (Drivers{"a": tc.a, "b": tc.b}).Remediators(Settings{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	one, err := Drivers{"a": of("scheduler", "slurm")}.Remediators(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one["drain"].Plan(t.Context(), Step{Server: "s1"}); !errors.Is(err, ErrCannot) {
		t.Errorf("a server that is of no scheduler: %v", err)
	}
}

// another is a driver that knows another way of reboot, and for which servers where it says so.
type another struct{ scheduling }

func (*another) Remediators(Settings) (map[string]Remediator, error) { return nil, nil }

func (d *another) Reliefs(s Settings) (map[string]Remediator, error) {
	return d.Keep(s, map[string]Remediator{"reboot": scheduled{&d.scheduling}})
}

// The board controllers, which know no servers of their own, come after the scheduler that does, whatever their names.
func TestAServerGoesTheFirstWayThatReachesIt(t *testing.T) {
	with := Settings{Resource: func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: id, Attrs: schemas.AttrsOf(map[string]string{"scheduler": id, "agent": id})}, true
	}}
	agent := &another{scheduling{Servers{"agent", []string{"a1"}}, map[string]int{}, nil}}
	board := &another{scheduling{Servers{}, map[string]int{}, nil}}
	slurm := &another{scheduling{Servers{"scheduler", []string{"s1"}}, map[string]int{}, nil}}
	all, err := Drivers{"a": agent, "bmc": board, "slurm": slurm}.Remediators(with)
	if err != nil {
		t.Fatal(err)
	}
	for server, d := range map[string]*another{"a1": agent, "s1": slurm, "x1": board} {
		if err := all["reboot"].Apply(t.Context(), Step{Server: server}); err != nil || d.asked[server] != 1 {
			t.Errorf("%s: %v, asked %v", server, err, d.asked)
		}
	}
	if n := len(agent.asked) + len(board.asked) + len(slurm.asked); n != 3 {
		t.Errorf("%d were asked", n)
	}
}
