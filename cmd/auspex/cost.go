package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/allocator"
	"auspex/control"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// costs tells what a step would end, by the inventory, by what schedulers say that runs, and by who has servers.
type costs struct {
	inv *cmdb.Inventory
	db  *sqldb.DB
}

var _ control.Costs = costs{}

// Of implements control.Costs. The hours of a job are those of all of its GPUs since it began, wherever they are: one
// server that restarts ends the job on every other.
func (c costs) Of(ctx context.Context, server, target string) (schemas.BlastRadius, error) {
	names, now := c.inv.Snapshot(), time.Now().UTC()
	out := schemas.BlastRadius{
		Time: now, Servers: []string{server}, GPUs: len(gpusOf(names, target)), Jobs: []schemas.JobAtRisk{}, Owners: []string{},
	}
	owner := func(name string) {
		if name != "" && !slices.Contains(out.Owners, name) {
			out.Owners = append(out.Owners, name)
		}
	}
	held, err := allocations.On(ctx, c.db, server)
	if err != nil {
		return out, fmt.Errorf("read who has %s: %w", server, err)
	}
	for i := range held {
		owner(tenant(&held[i]))
	}
	for _, w := range names.WorkloadsAt(target, time.Time{}) {
		if strings.HasPrefix(w.ID, allocator.WorkloadID("")) { // it is nothing that runs, but who may run something
			continue
		}
		job := schemas.JobAtRisk{ID: w.ID, Name: w.Attrs["name"], Owner: w.Attrs["owner"], Since: w.Start}
		gpus := map[string]bool{}
		for _, r := range w.Resources {
			for _, gpu := range gpusOf(names, r) {
				gpus[gpu] = true
			}
		}
		job.GPUs = len(gpus)
		if w.Start.IsZero() || job.GPUs == 0 {
			out.Unknown++
		} else {
			job.GPUHours = max(0, now.Sub(w.Start).Hours()) * float64(job.GPUs)
		}
		out.GPUHours += job.GPUHours
		out.Jobs = append(out.Jobs, job)
		owner(job.Owner)
	}
	return out, nil
}

// gpusOf are the GPUs of a resource: itself, or those that are part of it.
func gpusOf(names *cmdb.Snapshot, id string) (out []string) {
	if r, ok := names.Resource(id); ok && r.Kind == schemas.KindGPU {
		return []string{id}
	}
	for _, part := range names.Children(id) {
		out = append(out, gpusOf(names, part)...)
	}
	return out
}
