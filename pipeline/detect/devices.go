package detect

import (
	"slices"
	"strings"
	"time"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// devices takes what an agent says that the pods of its server hold
// ([schemas.EventWorkloadDevices]), and returns the workloads whose resources it changes. A
// scheduler says on which servers the pods of a workload are; which GPUs of theirs, most
// clusters leave to the servers.
func (w *Workloads) devices(ev *schemas.Event, pending []schemas.Workload) (changed []schemas.Workload) {
	server := ev.Resource
	pods := map[string][]string{}
	for entry := range strings.SplitSeq(ev.Attr(schemas.AttrPods), ",") {
		name, numbers, ok := strings.Cut(entry, "=")
		if !ok {
			continue
		}
		for n := range strings.SplitSeq(numbers, "+") {
			pods[name] = append(pods[name], server+"/gpu"+n)
		}
	}
	if w.held[server] = pods; len(pods) == 0 {
		delete(w.held, server)
	}
	snap := w.inv.Snapshot()
	jobs := snap.WorkloadsAt(server, time.Time{})
	for _, p := range pending { // what is known of them is newer
		jobs = slices.DeleteFunc(jobs, func(j schemas.Workload) bool { return j.ID == p.ID })
		if p.End.IsZero() {
			jobs = append(jobs, p)
		}
	}
	for _, job := range jobs {
		if job.Attrs[schemas.AttrPods] == "" || !slices.ContainsFunc(job.Resources, func(r string) bool { return snap.Server(r) == server }) {
			continue
		}
		gpus := w.holds(snap, &job, server)
		if len(gpus) == 0 { // the server is all that is known
			gpus = []string{server}
		}
		at := slices.IndexFunc(job.Resources, func(r string) bool { return snap.Server(r) == server })
		now := slices.DeleteFunc(slices.Clone(job.Resources), func(r string) bool { return snap.Server(r) == server })
		now = slices.Insert(now, at, gpus...) // nothing of the server stands before it
		if !slices.Equal(now, job.Resources) {
			job.Resources = now
			changed = append(changed, job)
		}
	}
	w.changes.WithLabelValues("devices").Inc()
	return changed
}

// holds are the GPUs of a server that the pods of a workload hold, as its agent says.
func (w *Workloads) holds(snap *cmdb.Snapshot, job *schemas.Workload, server string) (gpus []string) {
	pods := w.held[server]
	if len(pods) == 0 {
		return nil
	}
	for name := range strings.SplitSeq(job.Attrs[schemas.AttrPods], ",") {
		for _, id := range pods[job.Attrs["account"]+"/"+name] {
			if _, ok := snap.Resource(id); !ok {
				w.changes.WithLabelValues("unknown_resource").Inc()
				continue
			}
			gpus = append(gpus, id)
		}
	}
	slices.Sort(gpus)
	return slices.Compact(gpus)
}

// narrow puts GPUs in the place of servers, where agents say which the workload's pods
// hold there, or said it before the scheduler has told this.
func (w *Workloads) narrow(snap *cmdb.Snapshot, job *schemas.Workload, resources []string) (out []string) {
	if job.Attrs[schemas.AttrPods] == "" {
		return resources
	}
	for _, r := range resources {
		if snap.Server(r) != r {
			out = append(out, r)
			continue
		}
		gpus := w.holds(snap, job, r)
		if _, said := w.held[r]; !said && job.End.IsZero() {
			for _, id := range job.Resources {
				if id != r && snap.Server(id) == r {
					gpus = append(gpus, id)
				}
			}
		}
		if len(gpus) == 0 {
			gpus = []string{r}
		}
		out = append(out, gpus...)
	}
	return out
}
