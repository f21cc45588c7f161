package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"auspex/schemas"
)

// States of workloads, in the words that Slurm has for them.
const (
	stateRunning   = "RUNNING"
	stateCompleted = "COMPLETED"
	stateFailed    = "FAILED"
	stateMemory    = "OUT_OF_MEMORY"
	stateNodeFail  = "NODE_FAIL"
	stateCancelled = "CANCELLED"
	statePreempted = "PREEMPTED"
	stateUnknown   = "UNKNOWN"
)

func ended(state string) bool { return state != stateRunning && state != "" }

// oldFailure is how long ago a failure may have been when it is first seen: what Kubernetes tells of the last end of
// a container can be months old.
const oldFailure = time.Hour

// workload is what a person started: the pods of one job are one.
type workload struct {
	id, name, kind, namespace string

	pods   map[string]*held  // by UID
	last   map[outcome]*held // of those that were deleted, the one that ended last
	gone   []failure         // of pods that were deleted, and not told yet
	newest time.Time         // when its newest pod was created
	idle   time.Time         // since when none of its pods runs; zero while one does
	failed time.Time         // when a failure was told last

	failing time.Time // the same, once what waits is told
}

// told is what was told of a workload last.
type told struct {
	State string   `json:"s,omitempty"`
	Start int64    `json:"t,omitempty"` // s
	End   int64    `json:"e,omitempty"` // s
	Where uint64   `json:"w,omitempty"` // its servers
	Seq   int64    `json:"n,omitempty"` // how often its state was told
	Fails []string `json:"f,omitempty"` // ids of failures, while their pods are listed
}

func (f *follower) putPod(p *pod) {
	h := f.cfg.reduce(p, p.gpus(f.cfg.Resources), f.now())
	if was := f.pods[h.uid]; was != nil {
		h.follow(was)
		if h.job != nil {
			h.job.pods[h.uid] = h
		}
	}
	f.pods[h.uid] = h
	if h.job == nil {
		f.unplaced[h.uid] = h
		return
	}
	f.fresh[h.job] = true
}

// follow takes over what was known of the same pod before: its end too, which the API may not say.
func (h *held) follow(was *held) {
	h.job = was.job
	if h.outcome.ended() && h.outcome == was.outcome {
		h.end = was.end
	}
}

func (f *follower) dropPod(uid string, p *pod) {
	h := f.pods[uid]
	if h == nil {
		return
	}
	now := f.now()
	if p != nil { // which may say more than what was seen before
		last := f.cfg.reduce(p, h.gpus, now)
		last.follow(h)
		h = last
	}
	h.gone(p, now)
	delete(f.pods, uid)
	delete(f.unplaced, uid)
	w := h.job
	if w == nil { // it came and went between two looks
		f.unplaced[uid] = h
		return
	}
	w.bury(h)
	f.fresh[w] = true
}

// bury keeps of a pod that was deleted what its workload's end is told by.
func (w *workload) bury(h *held) {
	delete(w.pods, h.uid)
	w.gone = append(w.gone, h.failures...)
	if was := w.last[h.outcome]; was == nil || h.end.After(was.end) {
		w.last[h.outcome] = h
	}
}

// place finds the workloads of new pods.
func (f *follower) place(ctx context.Context) error {
	if len(f.unplaced) == 0 {
		return nil
	}
	var direct []ref
	asked := map[string]bool{}
	for _, h := range f.unplaced {
		if h.group == "" && !asked[h.owner.UID] {
			asked[h.owner.UID] = true
			direct = append(direct, h.owner)
		}
	}
	if err := f.owners.warm(ctx, direct); err != nil {
		return err
	}
	for uid, h := range f.unplaced {
		w, err := f.workload(ctx, h)
		if err != nil {
			return err
		}
		h.job = w
		w.newest = later(w.newest, h.created)
		if f.pods[uid] == h {
			w.pods[uid] = h
		} else {
			w.bury(h)
		}
		f.fresh[w] = true
		delete(f.unplaced, uid)
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (f *follower) workload(ctx context.Context, h *held) (*workload, error) {
	w := &workload{namespace: h.namespace, pods: map[string]*held{}, last: map[outcome]*held{}}
	switch {
	case h.group != "":
		w.kind, w.name = "group", h.group
		w.id = h.namespace + "/" + h.group
	default:
		at := ref{Kind: "Pod", Name: h.name, UID: h.uid}
		if h.owner.UID != "" && h.owner.Kind != "Node" { // which owns static pods
			var err error
			if at, err = f.owners.top(ctx, h.namespace, h.owner); err != nil {
				return nil, err
			}
		}
		w.kind, w.name = at.Kind, at.Name
		w.id = h.namespace + "/" + at.Name + "@" + at.UID[:min(8, len(at.UID))] // one of the same name comes again
	}
	if have := f.workloads[w.id]; have != nil {
		return have, nil
	}
	f.workloads[w.id] = w
	return w, nil
}

// look tells what is new of a workload. It returns false where it is to be looked at again without a change.
func (f *follower) look(w *workload, now time.Time) (done bool) {
	s := f.shard(w.id)
	t := s.Jobs[w.id]
	if t == nil {
		t = &told{}
	}
	f.failures(w, t, now)

	running := false
	var start time.Time
	on, has := map[string]bool{}, map[string]bool{}
	var pods []string
	for _, h := range w.pods {
		if h.outcome.ended() {
			continue
		}
		on[f.server(h.node)] = true
		pods = append(pods, h.name)
		for _, uuid := range h.devices {
			if id := f.cfg.gpu(uuid); id != "" {
				has[id] = true
			}
		}
		if h.outcome == active {
			running = true
			if !h.start.IsZero() && (start.IsZero() || h.start.Before(start)) {
				start = h.start
			}
		}
	}
	switch {
	case running:
		w.idle = time.Time{}
		servers, gpus := slices.Sorted(maps.Keys(on)), slices.Sorted(maps.Keys(has))
		slices.Sort(pods)
		where := xxhash.Sum64String(strings.Join(slices.Concat(servers, gpus, pods), ","))
		if t.State == stateRunning && t.Where == where {
			return true
		}
		if t.State != stateRunning {
			w.last = map[outcome]*held{}
			t.Start = cmp.Or(start, now).Unix()
		}
		t.Where = where
		at := time.Unix(t.Start, 0).UTC()
		if t.State == stateRunning {
			at = now
		}
		f.told(w, t, stateRunning, at, servers, gpus, pods, now)
		return true
	case len(on) > 0: // its pods wait for their containers
		w.idle = time.Time{}
		return true
	}
	state, end := w.end()
	if state == "" || ended(t.State) && end.Unix() <= t.End {
		return true
	}
	if w.idle.IsZero() {
		w.idle = now
	}
	due := w.idle
	if end.Before(due) {
		due = end
	}
	if now.Before(due.Add(f.cfg.Settle)) {
		return false
	}
	var servers []string
	if t.State == "" { // it ran before we looked
		for _, h := range w.pods {
			on[f.server(h.node)] = true
			if !h.start.IsZero() && (start.IsZero() || h.start.Before(start)) {
				start = h.start
			}
		}
		servers = slices.Sorted(maps.Keys(on))
		t.Start = cmp.Or(start, end).Unix()
	}
	t.End = end.Unix()
	f.told(w, t, state, end, servers, nil, nil, now)
	return true
}

// forget drops a workload that has ended and has no pod any more.
func (f *follower) forget(w *workload) {
	s := f.shard(w.id)
	if t := s.Jobs[w.id]; len(w.pods) > 0 || f.fresh[w] || t != nil && t.State == stateRunning {
		return
	}
	delete(f.workloads, w.id)
	if s.Jobs[w.id] != nil {
		delete(s.Jobs, w.id)
		s.changed = true
	}
}

// end is how and when a workload without a running pod has ended; "" is that nothing of it ran. A pod that failed
// before another was created in its place does not decide it.
func (w *workload) end() (state string, at time.Time) {
	var first *held
	count := map[outcome]int{}
	see := func(h *held) {
		at = later(at, h.end)
		if h.outcome == failing && h.end.Before(w.newest) {
			count[waiting]++
			return
		}
		count[h.outcome]++
		if h.outcome == failing && (first == nil || h.end.Before(first.end)) {
			first = h
		}
	}
	for _, h := range w.pods {
		see(h)
	}
	for _, h := range w.last {
		see(h)
	}
	switch {
	case first != nil:
		state = stateFailed
		if n := len(first.failures); n > 0 {
			switch first.failures[0].reason {
			case reasonOOM:
				state = stateMemory
			case reasonNodeLost:
				state = stateNodeFail
			}
		}
	case count[vanished] > 0:
		state = stateUnknown
	case count[succeeded] > 0:
		state = stateCompleted
	case count[preempted] > 0:
		state = statePreempted
	case count[cancelled] > 0:
		state = stateCancelled
	case count[waiting] > 0:
		state = stateFailed
	}
	return state, at
}

// told tells a state of a workload and remembers it.
func (f *follower) told(w *workload, t *told, state string, at time.Time, servers, gpus, pods []string, now time.Time) {
	s := f.shard(w.id)
	t.State, t.Seq = state, t.Seq+1
	s.Jobs[w.id], s.changed = t, true
	ev := f.event(w.id, schemas.EventWorkloadState, state, at, now)
	f.describe(&ev, w, servers)
	if len(gpus) > 0 {
		ev.SetAttr("gpus", strings.Join(gpus, ","))
	}
	if len(pods) > 0 { // by which it is found which GPUs its agents say it holds
		ev.SetAttr(schemas.AttrPods, strings.Join(pods, ","))
	}
	if t.Start > 0 {
		ev.SetAttr("start", time.Unix(t.Start, 0).UTC().Format(time.RFC3339))
	}
	switch {
	case ended(state):
		ev.SetAttr("end", at.Format(time.RFC3339))
		ev.Message = w.id + " is " + state
		if state == stateUnknown {
			ev.Message = w.id + " is not listed any more"
		}
	default:
		ev.Message = fmt.Sprintf("%s is %s on %d nodes", w.id, state, len(servers))
	}
	ev.ID = schemas.EventID(f.device, strconv.FormatInt(t.Seq, 10), w.id, state, strconv.FormatInt(t.Start, 10))
	s.batch.Event(ev)
}

// describe adds what is known of a workload to an event of it.
func (f *follower) describe(ev *schemas.Event, w *workload, servers []string) {
	user, queue, gpus := "", "", 0
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		h := w.pods[uid]
		user, queue = cmp.Or(user, h.user), cmp.Or(queue, h.queue)
		if !h.outcome.ended() {
			gpus += h.gpus
		}
	}
	count := ""
	if gpus > 0 {
		count = strconv.Itoa(gpus)
	}
	for _, a := range [][2]string{
		{"workload", w.id},
		{"name", w.name},
		{"kind", w.kind},
		{"owner", user},
		{"account", w.namespace},
		{"partition", queue},
		{"nodes", strings.Join(servers, ",")},
		{"gpu_count", count},
	} {
		if a[1] != "" {
			ev.SetAttr(a[0], a[1])
		}
	}
}

// sameContainer reports whether two failures are of one container, by their ids.
func sameContainer(a, b string) bool {
	return a[:strings.LastIndexByte(a, '/')] == b[:strings.LastIndexByte(b, '/')]
}

// failures tells the first of the failures of a workload that were not told. Others that come with it, or soon after,
// are what it led to: they are counted.
func (f *follower) failures(w *workload, t *told, now time.Time) {
	var fresh []failure
	listed := map[string]bool{}
	note := func(all []failure) {
		for _, x := range all {
			listed[x.id] = true
			if !slices.Contains(t.Fails, x.id) && !slices.ContainsFunc(fresh, func(y failure) bool { return y.id == x.id }) {
				fresh = append(fresh, x)
			}
		}
	}
	for _, h := range w.pods {
		note(h.failures)
	}
	note(w.gone)
	s := f.shard(w.id)
	// Forgotten are those of pods that are gone, and, of a container that fails again and again, all but the last.
	kept := slices.DeleteFunc(slices.Clone(t.Fails), func(id string) bool {
		uid, _, _ := strings.Cut(id, "/")
		return !listed[id] && (w.pods[uid] == nil || slices.ContainsFunc(fresh, func(x failure) bool { return sameContainer(x.id, id) }))
	})
	s.changed = s.changed || len(kept) != len(t.Fails)
	t.Fails = kept
	if len(fresh) == 0 {
		return
	}
	for _, x := range fresh {
		t.Fails = append(t.Fails, x.id)
	}
	s.Jobs[w.id], s.changed = t, true
	n := len(fresh)
	fresh = slices.DeleteFunc(fresh, func(x failure) bool { return !x.at.IsZero() && now.Sub(x.at) > oldFailure })
	f.metrics.old.Add(float64(n - len(fresh)))
	if len(fresh) == 0 {
		return
	}
	if !w.failing.IsZero() && now.Sub(w.failing) < f.cfg.Settle {
		f.metrics.joined.Add(float64(len(fresh)))
		return
	}
	w.failing = now
	f.metrics.joined.Add(float64(len(fresh) - 1))
	slices.SortFunc(fresh, func(a, b failure) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.id, b.id)) })
	x := fresh[0]
	at := x.at
	if at.IsZero() || at.After(now.Add(time.Minute)) {
		at = now
	}
	ev := f.event(w.id, schemas.EventWorkloadFailed, strconv.FormatInt(x.code, 10), at, now)
	ev.Severity = schemas.SeverityError
	f.describe(&ev, w, nil)
	for _, a := range [][2]string{{"pod", x.pod}, {"container", x.container}, {"reason", x.reason}, {"server", f.server(x.node)}} {
		if a[1] != "" {
			ev.SetAttr(a[0], a[1])
		}
	}
	if x.signal > 0 {
		ev.SetAttr("signal", strconv.FormatInt(x.signal, 10))
	}
	if len(fresh) > 1 {
		ev.SetAttr("failures", strconv.Itoa(len(fresh)))
	}
	ev.Message = fmt.Sprintf("%s: pod %s on %s failed: %s, exit code %d", w.id, x.pod, f.server(x.node), x.reason, x.code)
	ev.ID = schemas.EventID(f.device, "fail", x.id)
	s.batch.Event(ev)
}
