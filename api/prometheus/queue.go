package prometheus

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// errBusy is a queue that is full.
var errBusy = errors.New("too many queries wait; try again in a moment")

// queue lets so many in at a time. Callers take turns, whatever number of
// requests each has sent, and one alone does not get every place.
type queue struct {
	mu         sync.Mutex
	free       int
	each       int // places of one caller
	waits, max int // requests that wait, of all
	maxEach    int // and of one caller
	inside     map[string]int
	lines      map[string][]chan struct{}
	turns      []string // callers that wait, the next one first
}

func newQueue(places, waiting int) *queue {
	return &queue{
		free: places, each: max(1, (places+1)/2), max: waiting, maxEach: max(1, waiting/4),
		inside: map[string]int{}, lines: map[string][]chan struct{}{},
	}
}

// enter waits for a place; leave gives it back.
func (q *queue) enter(ctx context.Context, caller string) (leave func(), err error) {
	q.mu.Lock()
	if q.free > 0 && q.inside[caller] < q.each {
		q.take(caller)
		q.mu.Unlock()
		return func() { q.leave(caller) }, nil
	}
	if q.waits >= q.max || len(q.lines[caller]) >= q.maxEach {
		q.mu.Unlock()
		return nil, errBusy
	}
	ticket := make(chan struct{})
	if len(q.lines[caller]) == 0 {
		q.turns = append(q.turns, caller)
	}
	q.lines[caller] = append(q.lines[caller], ticket)
	q.waits++
	q.mu.Unlock()
	select {
	case <-ticket:
		return func() { q.leave(caller) }, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	k := slices.Index(q.lines[caller], ticket)
	if k < 0 { // it got its place just now
		q.give(caller)
		return nil, ctx.Err()
	}
	q.drop(caller, k)
	return nil, ctx.Err()
}

// counts returns how many are inside and how many wait.
func (q *queue) counts() (inside, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.inside {
		inside += n
	}
	return inside, q.waits
}

func (q *queue) take(caller string) {
	q.free--
	q.inside[caller]++
}

func (q *queue) leave(caller string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.give(caller)
}

// give gives a place back, and on to those who wait.
func (q *queue) give(caller string) {
	q.free++
	if q.inside[caller]--; q.inside[caller] == 0 {
		delete(q.inside, caller)
	}
	for k := 0; q.free > 0 && k < len(q.turns); {
		next := q.turns[k]
		if q.inside[next] >= q.each {
			k++
			continue
		}
		ticket := q.lines[next][0]
		q.drop(next, 0)
		if len(q.lines[next]) > 0 { // behind the others
			q.turns = append(slices.Delete(q.turns, k, k+1), next)
		}
		q.take(next)
		close(ticket)
	}
}

// drop takes a request out of its caller's line.
func (q *queue) drop(caller string, k int) {
	q.waits--
	if q.lines[caller] = slices.Delete(q.lines[caller], k, k+1); len(q.lines[caller]) == 0 {
		delete(q.lines, caller)
		q.turns = slices.DeleteFunc(q.turns, func(c string) bool { return c == caller })
	}
}
