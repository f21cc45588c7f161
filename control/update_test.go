package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"auspex/schemas"
)

// installer is a driver of firmware whose controller says what is under way.
type installer struct {
	worldStep
	task string
	err  error
}

func (i installer) Updating(context.Context, string) (string, error) { return i.task, i.err }

// While firmware is being installed on a server its power is left alone, force or not; where that cannot be
// read, an update of ours that was not seen to end counts as one.
func TestNoPowerActionCutsAnUpdate(t *testing.T) {
	t.Parallel()
	force := map[string]string{"force": "true"}
	for name, tc := range map[string]struct {
		i    installer
		kind string
		with map[string]string
		left bool // an update of ours has an unknown outcome
		want string
	}{
		"under way":                     {installer{task: "/tasks/1"}, "power_cycle", force, false, "an update of firmware is under way on " + server + " (/tasks/1)"},
		"under way, to power on":        {installer{task: "/tasks/1"}, "power_on", nil, false, "an update of firmware is under way"},
		"none":                          {installer{}, "power_cycle", force, false, ""},
		"cannot be told here":           {installer{err: fmt.Errorf("%w: IPMI", ErrCannot)}, "power_cycle", force, false, ""},
		"no answer, and none was begun": {installer{err: errors.New("no route")}, "power_cycle", force, false, ""},
		"no answer, one of ours left":   {installer{err: errors.New("no route")}, "power_cycle", force, true, "has not been seen to end"},
		"what only drains goes on":      {installer{task: "/tasks/1"}, "drain", nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			c := b.controller()
			tc.i.worldStep = worldStep{b.w}
			c.d.Remediators[kindUpdate] = tc.i
			if tc.left {
				k := c.caseOf(wish("u", kindUpdate, nil))
				k.State = caseDone
				p, _ := c.policyOf(k)
				a := c.newAction(k, p, 0, 1, p.Ladder[0])
				a.State = schemas.ActionUnknown
				if _, err := c.store.openRequest(t.Context(), k, &a, true); err != nil {
					t.Fatal(err)
				}
				if err := c.store.saveAction(t.Context(), k, &a, true, time.Now(), "ann", "intend"); err != nil {
					t.Fatal(err)
				}
			}
			b.tell(c, wish("r", tc.kind, tc.with))
			b.until(c, func([]schemas.Action) bool { return ended(b.actionOf("r")) })
			a := b.actionOf("r")
			if refused := a.State == schemas.ActionRefused; refused != (tc.want != "") || !strings.Contains(a.Detail, tc.want) {
				t.Errorf("%s: %s, %+v", a.State, a.Detail, a.Rails)
			}
			if n := b.w.applied["r"]; n != 0 && tc.want != "" {
				t.Errorf("%d steps were sent", n)
			}
		})
	}
}
