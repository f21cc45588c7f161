package stormgen

import (
	"fmt"
	"slices"
	"strconv"

	"auspex/schemas"
)

// job is a program on whole servers.
type job struct {
	id         string
	servers    []int
	start, end float64 // end 0: it runs
	timeout    float64 // of its collectives
	verbose    float64 // the share of its ranks that say anything
	hurt, both bool    // something ends it; two things do, and nobody can tell which
	cause      int     // the first of them
}

// crowd fills the servers with jobs.
func (w *world) crowd() {
	free := []int{}
	for _, s := range w.servers {
		if len(w.of(s, schemas.KindGPU)) > 0 {
			free = append(free, s)
		}
	}
	for len(free) > 0 {
		n := min(len(free), 1+int(w.rng.ExpFloat64()*w.span(1, 10)))
		if w.p(0.75) {
			w.launch(free[:n])
		}
		free = free[n:]
	}
}

func (w *world) launch(servers []int) {
	w.next++
	j := &job{
		id: fmt.Sprintf("job-%d", 1000+w.next), servers: append([]int(nil), servers...), start: w.now,
		timeout: []float64{60, 300, 600, 1800}[w.rng.IntN(4)], verbose: w.span(0.2, 1),
	}
	w.jobs = append(w.jobs, j)
	for _, s := range servers {
		w.on[s] = j
	}
}

// hurt lets the job on a server feel that something there is broken: "down" the
// server is gone, "abort" its rank died, "stall" it does not answer any more.
func (w *world) hurt(c, server int, how string) {
	j := w.on[server]
	if j == nil || j.end > 0 {
		return
	}
	if c >= 0 {
		w.cases[c].workload(j.id)
	}
	if j.hurt {
		j.both = j.both || j.cause != c
		return
	}
	j.hurt, j.cause = true, c
	wait := w.about(3)
	if how == "stall" || how == "down" && w.p(0.5) {
		wait = j.timeout + w.span(0, 3)
	}
	w.after(wait, func() { w.fail(c, j, server, how) })
}

// fail plays the end of a job: its ranks elsewhere say that nobody answers, their
// channels are torn down, and the scheduler starts it again without the server.
func (w *world) fail(c int, j *job, bad int, how string) {
	if j.end > 0 {
		return
	}
	j.end = w.now
	var others []int
	for _, s := range j.servers {
		if w.on[s] == j {
			delete(w.on, s)
		}
		if s != bad && w.running(s) {
			others = append(others, s)
		}
	}
	quick := 1.0
	if how == "program" {
		quick = 0.3
	}
	if w.sees("timeouts", 0.9*quick) {
		for i, s := range others {
			if w.p(j.verbose) {
				w.after(w.about(1.5), func() {
					w.via = j
					w.say(c, schemas.SourceAgent, s, schemas.EventWorkloadCommTimeout, "", schemas.SeverityError, "",
						"workload", j.id, "rank", strconv.Itoa(8*i))
					w.via = nil
				})
			}
		}
	}
	if w.sees("teardown", 0.8) {
		share := w.span(0.2, 1)
		for _, s := range others {
			for _, g := range w.of(s, schemas.KindGPU) {
				if w.p(share) {
					w.after(2+w.about(4), func() {
						w.via = j
						w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "45", schemas.SeverityWarning, "")
						w.via = nil
					})
				}
			}
		}
	}
	w.after(w.about(12), func() {
		if w.sees("job ended", 0.9) {
			code := []string{"1", "134", "137", "255"}[w.rng.IntN(4)]
			w.via = j
			w.tell(c, schemas.SourceScheduler, j.id, -1, schemas.EventWorkloadFailed, code, schemas.SeverityError, "", "workload", j.id)
			w.via = nil
		}
	})
	w.after(60+w.about(200), func() {
		var again []int
		for _, s := range j.servers {
			if s != bad && w.running(s) && w.on[s] == nil {
				again = append(again, s)
			}
		}
		for _, s := range w.servers {
			if len(again) >= len(j.servers) || len(again) == 0 {
				break
			}
			if w.on[s] == nil && w.running(s) && s != bad && len(w.of(s, schemas.KindGPU)) > 0 && !has(again, s) {
				again = append(again, s)
			}
		}
		if len(again) > 0 {
			w.launch(again)
		}
	})
}

// atWork returns the jobs that run.
func (w *world) atWork() (out []job) {
	for _, j := range w.jobs {
		if j.end == 0 {
			out = append(out, *j)
		}
	}
	return out
}

func has(list []int, x int) bool {
	return slices.Contains(list, x)
}

// busy returns a server with a job of at least n servers, or any server.
func (w *world) busy(n int) int {
	var list []int
	for _, s := range w.servers {
		if j := w.on[s]; j != nil && j.end == 0 && len(j.servers) >= n {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return w.pick(w.servers)
	}
	return w.pick(list)
}

// workloads returns the jobs as the inventory has them.
func (w *world) workloads() (out []schemas.Workload) {
	for _, j := range w.jobs {
		x := schemas.Workload{ID: j.id, Start: clockTime(j.start)}
		if j.end > 0 {
			x.End = clockTime(j.end)
		}
		for _, s := range j.servers {
			for _, g := range w.of(s, schemas.KindGPU) {
				x.Resources = append(x.Resources, w.parts[g].id)
			}
		}
		out = append(out, x)
	}
	return out
}
