package control

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"auspex/schemas"
)

// going is a driver whose steps go on in the world until they are ended there, and which follows it.
type going struct {
	worldStep
	ended, followed atomic.Int64
	fail            error
	others          map[string]Remediator
}

// End implements Ender.
func (g *going) End(context.Context, Step) error {
	g.ended.Add(1)
	return g.fail
}

// Follow implements Follower.
func (g *going) Follow(ctx context.Context) {
	g.followed.Add(1)
	<-ctx.Done()
	g.followed.Add(-1)
}

// Through implements Compound.
func (g *going) Through(others map[string]Remediator) { g.others = others }

// A step that goes on is ended when it is out of time, and only then it has failed: where it cannot be
// ended, nobody knows what it still does.
func TestAStepThatGoesOnIsEndedWhenItIsOutOfTime(t *testing.T) {
	for want, fail := range map[string]error{schemas.ActionFailed: nil, schemas.ActionUnknown: errors.New("no route")} {
		t.Run(want, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			b.w.lazy = true
			g := &going{worldStep: worldStep{b.w}, fail: fail}
			c := b.controller()
			c.d.Remediators["power_cycle"], c.d.Remediators["install"] = g, g
			as := b.until(
				c, func(as []schemas.Action) bool {
					return states(as)["power_cycle"] == want && g.followed.Load() == 1
				},
				incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
			)
			if n := g.ended.Load(); n != 1 {
				t.Errorf("it was ended %d times", n)
			}
			if a := kind(as, "power_cycle"); fail != nil && !strings.Contains(a.Detail, "no route") {
				t.Errorf("%s: %s", a.State, a.Detail)
			}
			if g.followed.Load() != 0 {
				t.Error("it still follows")
			}
		})
	}
}

// A step that goes on is ended where somebody cancels it, as often as it takes, and then it is cancelled; one that nobody can end is not.
func TestAStepThatGoesOnIsEndedWhereSomebodyCancelsIt(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.w.lazy = true
	g := &stubborn{going: going{worldStep: worldStep{b.w}}}
	c := b.controller()
	c.d.Remediators["power_cycle"], c.store.ends = g, []string{"power_cycle"}
	cancelled := false
	as := b.until(
		c, func(as []schemas.Action) bool {
			a := kind(as, "power_cycle")
			if a.State == schemas.ActionVerifying && !cancelled {
				cancelled = true
				for _, id := range []string{kind(as, "drain").ID, a.ID} {
					kept, err := c.store.putIntent(t.Context(), schemas.Intent{Verb: verbCancel, Action: id, Actor: "li"})
					if err != nil || kept != (id == a.ID) {
						t.Errorf("%s: %v %v", id, kept, err)
					}
				}
			}
			return a.State == schemas.ActionCancelled && kind(as, "ticket").State == schemas.ActionProposed
		},
		incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
	)
	if n := g.ended.Load(); n != 2 {
		t.Errorf("it was ended %d times", n)
	}
	if a := kind(as, "power_cycle"); a.Actor != "li" || !strings.HasPrefix(a.Detail, "cancelled by li, and ended there; what it had done until then stays: ") {
		t.Errorf("%+v", a)
	}
	if states(as)["uncordon"] != "" {
		t.Error("its server was given back")
	}
}

// stubborn cannot be ended at first.
type stubborn struct{ going }

// End implements Ender.
func (s *stubborn) End(context.Context, Step) error {
	if s.ended.Add(1) == 1 {
		return errors.New("no route")
	}
	return nil
}

// What is read of a step that has an identity in the world is certain, also where its answer was lost.
func TestAStepThatIsToldApartFailsForCertainThoughItsAnswerWasLost(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	g := &refusing{going{worldStep: worldStep{b.w}}}
	c := b.controller()
	c.d.Remediators["power_cycle"] = g
	b.until(
		c, func(as []schemas.Action) bool { return states(as)["power_cycle"] == schemas.ActionFailed },
		incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
	)
}

// refusing loses its answer, and then shows that it has failed.
type refusing struct{ going }

func (*refusing) Apply(context.Context, Step) error { return errors.New("the answer was lost") }

func (*refusing) Verify(context.Context, Step) (Verdict, schemas.Sentence, error) {
	return Failed, schemas.Sentence{ID: "step.no_reset"}, nil
}

type driven map[string]Remediator

// Remediators implements Driver.
func (d driven) Remediators(Settings) (map[string]Remediator, error) { return d, nil }

func TestADriverIsToldOfTheOthersThatItWorksThrough(t *testing.T) {
	g, boot := &going{}, worldStep{}
	all, err := Drivers{"a": driven{"install": g}, "b": driven{"set_boot": boot}}.Remediators(Settings{})
	if err != nil || len(all) != 2 || g.others["set_boot"] != Remediator(boot) {
		t.Error(all, err)
	}
}
