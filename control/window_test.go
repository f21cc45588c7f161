package control

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/schemas"
)

// work is the windows that are open, by server.
type work map[string]string

func (w work) Covering(_ context.Context, t time.Time, resources ...string) (schemas.Maintenance, bool, error) {
	for _, r := range resources {
		if id := w[r]; id != "" {
			return schemas.Maintenance{ID: id, By: "li", Until: t.Add(time.Hour)}, true, nil
		}
	}
	return schemas.Maintenance{}, false, nil
}

// shift is work that ends.
type shift struct {
	mu sync.Mutex
	work
}

func (s *shift) Covering(ctx context.Context, t time.Time, resources ...string) (schemas.Maintenance, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work.Covering(ctx, t, resources...)
}

// Where people work, nothing is repaired: the step waits, however long that takes, says for
// whom, and goes on once they are done. Next door it is repaired meanwhile.
func TestNothingIsRepairedWherePeopleWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	people := &shift{work: work{"gpu-r01-03": "w1"}}
	c.d.Maintenance = people
	c.cfg.ApproveWithin = 4 * time.Second // long enough for the server next door, also on a busy machine
	b.until(c, func(as []schemas.Action) bool {
		var next, here []string
		for _, a := range as {
			switch {
			case a.Server == "gpu-r01-03" && c.d.Now().Sub(a.Created) > c.cfg.ApproveWithin && slices.ContainsFunc(a.Rails, func(r schemas.Rail) bool {
				return r.Name == railWindow && !r.OK && r.Sentence.ID == messages.InWindow && r.Sentence.Args["window"] == "w1"
			}):
				here = append(here, a.State)
			case a.Server == "gpu-r02-03" && a.Kind == "uncordon":
				next = append(next, a.State)
			}
		}
		return slices.Equal(here, []string{schemas.ActionWaiting}) && slices.Equal(next, []string{schemas.ActionDone})
	}, incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"), incident("i2", "gpu-r02-03/gpu2", "gpu.fallen_off_bus"))
	b.w.mu.Lock()
	drained := b.w.drained["gpu-r01-03"]
	b.w.mu.Unlock()
	if drained {
		t.Error("it was drained all the same")
	}
	people.mu.Lock()
	people.work = nil
	people.mu.Unlock()
	c = b.controller()
	c.d.Maintenance = people
	b.until(c, func(as []schemas.Action) bool {
		return slices.ContainsFunc(as, func(a schemas.Action) bool {
			return a.Server == "gpu-r01-03" && a.Kind == "uncordon" && a.State == schemas.ActionDone
		})
	})
}
