package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	rest "auspex/internal/slurm"
	"auspex/schemas"
)

// list is how far a list was read.
type list struct {
	pass  uint32    // counts readings
	full  time.Time // when all of it was last read
	since int64     // what it was then is known, by the controller's clock; 0 where the version does not say
	whole bool      // the daemon does not take a time
	count int       // its elements
}

// due reports whether all is to be read, whatever has changed.
func (l *list) due(now time.Time, every time.Duration) bool {
	return l.full.IsZero() || now.Before(l.full) || now.Sub(l.full) >= every
}

// read reads a list, only if something in it has changed where that can be asked. What each has seen counts if it ends well.
func (p *poller) read(ctx context.Context, l *list, name string, full bool, begin func(), each func(raw []byte)) (rest.Head, error) {
	ask := func(since int64) (rest.Head, error) {
		l.pass++
		begin()
		head, err := p.client.List(ctx, name, name, since, each)
		return head, failure(err)
	}
	since := l.since
	if full || l.whole {
		since = 0
	}
	head, err := ask(since)
	if since > 0 && errors.Is(err, rest.ErrProtocol) {
		why := err
		if head, err = ask(0); err == nil {
			l.whole = true
			p.log.Warn("slurmrestd does not tell whether a list has changed; all of it is read each time", "list", name, "error", why)
		}
	}
	switch {
	case err != nil:
	case head.Unchanged:
		p.metrics.reads.WithLabelValues(name, readUnchanged).Inc()
	default:
		p.metrics.reads.WithLabelValues(name, readAll).Inc()
	}
	return head, err
}

// The bounds of what is asked for beside the lists.
const (
	// manyJobs is how many jobs a list has that is not read for each change, where the daemon tells states alone: they
	// are a hundredth of it.
	manyJobs = 1000
	// fewJobs is how many of them are asked for one by one.
	fewJobs = 64
	// fewLost is how many jobs accounting is asked for one by one.
	fewLost = 16
	// maxPast bounds the jobs that are taken from accounting at a time, and longest their time.
	maxPast = 10_000
	longest = 7 * 24 * time.Hour
	// gap is how long nothing was read before accounting is asked for jobs that came and went meanwhile: the controller
	// itself lists what has ended for longer (slurm.conf(5), MinJobAge).
	gap = time.Minute
)

// jobReading is what was read of jobs.
type jobReading struct {
	jobs    []*job // that are new, or are not what was told
	came    bool   // all of the list did
	all     bool   // and what is not in it is gone
	count   int
	updated int64
	queued  map[int64]bool // those that wait, where that is asked
}

// readJobs reads what has changed.
func (p *poller) readJobs(ctx context.Context, now time.Time) (*jobReading, error) {
	full := p.jobList.due(now, p.cfg.Reconcile)
	var noStates error
	if !full && p.jobList.count >= manyJobs && now.After(p.stateless) {
		r, err := p.readStates(ctx)
		if r != nil || errors.Is(err, rest.ErrAuth) || ctx.Err() != nil {
			return r, failure(err)
		}
		noStates, full = err, true
	}
	r := &jobReading{}
	head, err := p.read(ctx, &p.jobList, "jobs", full, func() { *r = jobReading{all: true} }, func(raw []byte) { p.pick(raw, r) })
	if err != nil {
		return nil, err
	}
	if noStates != nil {
		p.stateless = now.Add(time.Hour)
		p.log.Warn("slurmrestd does not tell the states of jobs alone; all of them are read when one changes", "error", noStates)
	}
	if head.Unchanged {
		return &jobReading{}, nil
	}
	r.came, r.updated = true, head.Updated
	return r, nil
}

// pick takes a job of a list that is not as it was told.
func (p *poller) pick(raw []byte, r *jobReading) {
	r.count++
	g := glimpse(raw)
	if g.id <= 0 { // it may be any of those that seem to be gone
		r.all = false
		p.complain("a job without an id", fmt.Sprintf("%.200s", raw))
		return
	}
	t := p.mem.Jobs[g.id]
	if t != nil {
		t.pass = p.jobList.pass
	}
	if g.state == "" {
		p.complain(workload(g.id), fmt.Sprintf("it has no state: %.200s", raw))
		return
	}
	if wait := waiting(g.state); wait && p.away {
		if r.queued == nil {
			r.queued = map[int64]bool{}
		}
		r.queued[g.id] = true
	} else if t == nil && wait {
		return
	}
	if t == nil && waiting(g.state) || t != nil && t.State == g.state && t.At == g.start {
		return
	}
	j := &job{}
	if err := json.Unmarshal(raw, j); err != nil {
		p.complain(workload(g.id), err.Error())
		return
	}
	r.jobs = append(r.jobs, j)
}

// readStates reads the states of all jobs, and those jobs whose state has changed. It returns none where all are to be
// read: one is gone, or too many have changed, or, with the error, the daemon does not tell.
func (p *poller) readStates(ctx context.Context) (*jobReading, error) {
	p.jobList.pass++
	changed := map[int64]bool{}
	blind := false
	if _, err := p.client.List(ctx, "jobs/state", "jobs", 0, func(raw []byte) {
		g := glimpse(raw)
		t := p.mem.Jobs[g.id]
		switch {
		case g.id <= 0 || g.state == "":
			blind = true
		case t != nil:
			t.pass = p.jobList.pass
			if t.State != g.state {
				changed[g.id] = true
			}
		case !waiting(g.state) && len(changed) <= fewJobs:
			changed[g.id] = true
		}
	}); err != nil {
		return nil, err
	}
	if blind || len(changed) > fewJobs {
		return nil, nil //nolint:nilnil // all are to be read
	}
	for _, t := range p.mem.Jobs {
		if t.pass != p.jobList.pass && !t.ended {
			return nil, nil //nolint:nilnil // one is gone
		}
	}
	r := &jobReading{}
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		// Of an array all tasks come.
		if _, err := p.client.List(ctx, "job/"+strconv.FormatInt(id, 10), "jobs", 0, func(raw []byte) { p.pick(raw, r) }); err != nil {
			return nil, ctx.Err() // it may be gone by now
		}
	}
	r.all = false
	p.metrics.reads.WithLabelValues("jobs", readStates).Inc()
	return r, nil
}

// tellJobs tells what was read of jobs. A job that ran and is not listed any more is looked for in accounting; one that
// had ended is forgotten.
func (p *poller) tellJobs(ctx context.Context, r *jobReading, now time.Time) {
	if r.came {
		p.jobList.count, p.jobList.full, p.jobList.since = r.count, now, r.updated
		p.metrics.jobs.Set(float64(r.count))
	}
	asked := 0
	for _, j := range r.jobs {
		if len(j.State) > 0 && failed(stateOf([]byte(firstWord(j.State[0])))) && asked < fewLost {
			asked++
			p.stepOf(ctx, j, now)
		}
		p.job(j, now)
	}
	if !r.all {
		return
	}
	var lost []int64
	for id, t := range p.mem.Jobs {
		switch {
		case t.pass == p.jobList.pass:
		case t.ended:
			delete(p.mem.Jobs, id)
			p.changed = true
		default:
			lost = append(lost, id)
		}
	}
	slices.Sort(lost)
	missed := p.away && cmp.Or(r.updated, now.Unix())-p.mem.At > int64(gap.Seconds())
	p.away = false
	if len(lost) == 0 && !missed {
		return
	}
	p.bygone(ctx, lost, r, missed, now)
}

// stepOf asks accounting which step of a job failed; what has none is not asked again for a while.
func (p *poller) stepOf(ctx context.Context, j *job, now time.Time) {
	if now.Before(p.stepless) {
		return
	}
	past, err := p.client.PastOf(ctx, j.ID.N)
	if err != nil {
		p.stepless = now.Add(10 * time.Minute)
		return
	}
	for i := range past {
		// Of a task of an array all tasks are told, and of a job that was started again each run.
		if s, ok := past[i].Failed(); ok && past[i].ID.N == j.ID.N && past[i].Time.Start.N == j.Start.N {
			j.step = &s
		}
	}
}

// bygone tells the ends of jobs that are not listed any more, as accounting has them, and, where nothing was read for a
// while, of those that came and went meanwhile.
func (p *poller) bygone(ctx context.Context, lost []int64, r *jobReading, missed bool, now time.Time) {
	past, err := p.past(ctx, lost, r, missed, now)
	why := "accounting does not say how"
	if err != nil {
		if why = "accounting is not read"; err.Error() != p.unaccounted {
			p.log.Warn("accounting is not read: how jobs ended that slurmctld lists no more is not known", "error", err)
		}
		p.unaccounted = err.Error()
	} else {
		p.unaccounted = ""
	}
	ends := map[int64]*job{}
	for i := range past {
		j := ofPast(&past[i])
		id := j.ID.N
		if len(j.State) == 0 || !ended(stateOf([]byte(firstWord(j.State[0])))) {
			continue
		}
		switch t := p.mem.Jobs[id]; {
		case t != nil && t.pass == p.jobList.pass, r.queued[id]: // it is listed, and tells itself
			continue
		case t == nil && !missed, t == nil && j.End.N < p.mem.At: // told before
			continue
		case t != nil && t.At > 0 && j.Start.N != t.At: // an earlier run, or of another job with this number
			continue
		}
		if was := ends[id]; was == nil || j.End.N > was.End.N {
			ends[id] = j
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		p.job(ends[id], now)
		delete(p.mem.Jobs, id)
		p.changed = true
		p.metrics.unseen.WithLabelValues("accounting").Inc()
	}
	for _, id := range lost {
		if t := p.mem.Jobs[id]; t != nil {
			p.unseen(id, t, "is not listed any more: it ended unseen, and "+why, now)
			p.metrics.unseen.WithLabelValues("none").Inc()
		}
	}
}

func firstWord(s string) string { // "CANCELLED by 1000"
	w, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return w
}

// past asks accounting.
func (p *poller) past(ctx context.Context, lost []int64, r *jobReading, missed bool, now time.Time) (out []rest.Past, err error) {
	if !missed && len(lost) <= fewLost {
		for _, id := range lost {
			past, err := p.client.PastOf(ctx, id)
			if err != nil {
				return out, err
			}
			out = append(out, past...)
		}
		return out, nil
	}
	until := cmp.Or(r.updated, now.Unix())
	since := max(cmp.Or(p.mem.At, until-int64(longest.Seconds())), until-int64(longest.Seconds()))
	out, more, err := p.client.PastSince(ctx, since, until+1, maxPast)
	if more > 0 {
		p.log.Warn("more jobs ended while nothing was read than are taken from accounting", "left_out", more)
		p.metrics.unseen.WithLabelValues("left_out").Add(float64(more))
	}
	return out, err
}

// unseen tells that a run of a job is over, and nobody saw how.
func (p *poller) unseen(id int64, t *published, what string, now time.Time) {
	delete(p.mem.Jobs, id)
	p.changed = true
	name := workload(id)
	ev := p.event(name, schemas.EventWorkloadState, stateUnknown, now)
	ev.Message = name + " " + what
	ev.SetAttr("workload", name)
	ev.SetAttr("end", now.Format(time.RFC3339))
	ev.ID = schemas.EventID(p.device, strconv.FormatInt(t.At, 10), name, stateUnknown)
	p.batch.Event(ev)
}

// ended reports whether a job in this state will not run any more.
func ended(state string) bool {
	switch state {
	case "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED",
		stateUnknown:
		return true
	}
	return false
}

// failed reports whether a job's end is a failure, and not a wish or a limit.
func failed(state string) bool {
	switch state {
	case "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL":
		return true
	}
	return false
}

func workload(id int64) string { return "job-" + strconv.FormatInt(id, 10) }

func (p *poller) job(j *job, now time.Time) {
	if len(j.State) == 0 {
		return
	}
	state, name := stateOf([]byte(firstWord(j.State[0]))), workload(j.ID.N)
	was := p.mem.Jobs[j.ID.N]
	if waiting(state) || state == "CONFIGURING" && j.Nodes == "" {
		if was != nil && !was.ended {
			p.unseen(j.ID.N, was, "is back in the queue: its run is over", now)
		} else if was != nil {
			delete(p.mem.Jobs, j.ID.N)
			p.changed = true
		}
		return
	}
	if unset(j.Start) || unset(j.End) {
		p.complain(name, fmt.Sprintf("it starts at %d and ends at %d, before the year 2000: a clock was not set; it is told as of now", j.Start.N, j.End.N))
	}
	at := moment(j.Start)
	if ended(state) {
		at = moment(j.End)
	}
	if at.IsZero() || at.After(now.Add(time.Minute)) {
		at = now
	}
	if was != nil && was.State == state && was.At == j.Start.N {
		return
	}
	if was != nil && was.State == stateRunning && was.At > 0 && j.Start.N > was.At {
		// It was started again, or another job has its number now.
		p.unseen(j.ID.N, was, "began anew at "+j.Start.Time().Format(time.RFC3339)+": how its run before ended was not seen", now)
	}
	t := &published{State: state, At: j.Start.N, ended: ended(state), pass: p.jobList.pass}
	p.mem.Jobs[j.ID.N], p.changed = t, true

	hosts, err := rest.Hosts(j.Nodes)
	if err != nil {
		p.complain(name, "its nodes: "+err.Error())
	}
	ev := p.event(name, schemas.EventWorkloadState, state, at)
	for _, a := range append([][2]string{
		{"workload", name},
		{"owner", j.User},
		{"name", j.Name},
		{"partition", j.Partition},
		{"account", j.Account},
		{"nodes", strings.Join(hosts, ",")},
		{"gpus", strings.Join(gpus(hosts, j.Gres), ",")},
	}, j.place()...) {
		if a[1] != "" {
			ev.SetAttr(a[0], a[1])
		}
	}
	if s := moment(j.Start); !s.IsZero() {
		ev.SetAttr("start", s.Format(time.RFC3339))
	}
	if t.ended {
		ev.SetAttr("end", at.Format(time.RFC3339))
	}
	ev.Message = fmt.Sprintf("%s (%s of %s) is %s on %d nodes", name, j.Name, j.User, state, len(hosts))
	if j.past {
		ev.Message += ", by accounting"
	}
	epoch := strconv.FormatInt(j.Submit.N, 10)
	ev.ID = schemas.EventID(p.device, epoch, name, state, strconv.FormatInt(at.Unix(), 10))
	p.batch.Event(ev)
	if !failed(state) {
		return
	}
	code := strconv.FormatInt(j.Exit.Status(), 10)
	if j.past && state == "FAILED" && j.Exit.Status() == 0 { // accounting of 22.05 (v0.0.38) does not tell how it exited
		code = ""
	}
	f := p.event(name, schemas.EventWorkloadFailed, code, at)
	f.Severity, f.Attrs = schemas.SeverityError, make(map[string]string, len(ev.Attrs)+4)
	maps.Copy(f.Attrs, ev.Attrs)
	f.SetAttr("state", state)
	if j.Exit.Signal > 0 {
		f.SetAttr("signal", strconv.FormatInt(j.Exit.Signal, 10))
	}
	f.Message = fmt.Sprintf("%s (%s of %s) %s on %d nodes: exit code %s", name, j.Name, j.User, state, len(hosts), cmp.Or(code, "not known"))
	if s := j.step; s != nil {
		f.SetAttr("step", cmp.Or(string(s.Step.ID), s.Step.Name))
		f.SetAttr("step_name", s.Step.Name)
		f.Message += fmt.Sprintf(" (step %s, %s: %d)", s.Step.ID, s.Step.Name, s.Exit.Status())
	}
	f.ID = schemas.EventID(p.device, epoch, name, schemas.EventWorkloadFailed, strconv.FormatInt(at.Unix(), 10))
	p.batch.Event(f)
}
