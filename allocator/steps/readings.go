package steps

import (
	"context"
	"slices"
	"strings"
	"time"

	"auspex/internal/reasons"
	"auspex/schemas"
)

// Readings looks at what is read of a server from outside: whether its parts report, whether
// somebody computes on it, and whether it is known to be ill. It changes nothing.
type Readings struct {
	// Newest returns when each resource of a server was last read, from all collectors; nil where
	// this process sees no telemetry.
	Newest func(ctx context.Context, server string) (map[string]time.Time, error)
	// Parts lists what a server has in the inventory.
	Parts func(server string) []schemas.Resource
	// Running lists the workloads that run on resources now, but for allocations.
	Running func(resources ...string) []string
	// Ill says what is wrong with a server and its parts; empty is nothing.
	Ill func(ctx context.Context, server string) ([]string, error)
	// Works reports whether control works on a server.
	Works func(ctx context.Context, server string) (bool, error)
}

// Names of its steps.
const (
	Telemetry = "telemetry" // each part that was ever read has been read since the step began
	Health    = "health"    // no open incident blames the server or a part of it; a cleanup waits until that is so, and control is done
	Idle      = "idle"      // nothing computes on it
)

// Kinds implements [Driver].
func (r Readings) Kinds() []string { return []string{Telemetry, Health, Idle} }

// Do implements [Driver].
func (r Readings) Do(ctx context.Context, j Job) (Progress, error) {
	switch j.Step.Name {
	case Telemetry:
		return r.telemetry(ctx, j)
	case Health:
		ill, err := r.Ill(ctx, j.Workflow.Server)
		if err != nil {
			return Progress{}, err
		}
		if len(ill) > 0 { // what has come back is repaired meanwhile
			return Progress{Failed: j.Workflow.Type != schemas.WorkflowCleanup, Message: reasons.Some(ill)}, nil
		}
		if j.Workflow.Type == schemas.WorkflowCleanup && j.takesOut() { // by control, which does one thing at a time on a server
			if busy, err := r.Works(ctx, j.Workflow.Server); err != nil || busy {
				return Progress{Message: reasons.Text(reasons.WorksOn, nil)}, err
			}
		}
		return Progress{Done: true, Message: reasons.Text(reasons.Well, nil)}, nil
	default:
		on := j.GPUs
		if j.Workflow.Exclusive {
			on = []string{j.Workflow.Server}
		}
		if busy := r.Running(on...); len(busy) > 0 {
			return Progress{Message: reasons.Text(reasons.Runs, reasons.Args{"names": reasons.Some(busy)})}, nil
		}
		return Progress{Done: true, Message: reasons.Text(reasons.Idle, nil)}, nil
	}
}

// telemetry waits until what is read of a server has been read since the step began: its GPUs in any
// case, other parts where they were read before.
func (r Readings) telemetry(ctx context.Context, j Job) (Progress, error) {
	if r.Newest == nil {
		return Progress{Failed: true, Message: reasons.Text(reasons.Blind, nil)}, nil
	}
	newest, err := r.Newest(ctx, j.Workflow.Server)
	if err != nil {
		return Progress{}, reasons.Error(reasons.ReadError, reasons.Args{"server": j.Workflow.Server}, err)
	}
	var late, never []string
	gpus, others := 0, 0
	for _, part := range r.Parts(j.Workflow.Server) {
		about := slices.Contains(j.GPUs, part.ID)
		if part.Kind == schemas.KindGPU && !about || !j.Workflow.Exclusive && !about {
			continue
		}
		at, read := newest[part.ID]
		short := strings.TrimPrefix(part.ID, j.Workflow.Server+"/")
		switch {
		case read && !at.Before(j.Step.StartedAt) && part.Kind == schemas.KindGPU:
			gpus++
		case read && !at.Before(j.Step.StartedAt):
			others++
		case read:
			late = append(late, short)
		case part.Kind == schemas.KindGPU:
			late = append(late, short)
		default:
			never = append(never, short)
		}
	}
	if len(late) > 0 {
		return Progress{Message: reasons.Text(reasons.Unread, reasons.Args{"names": reasons.Some(late)})}, nil
	}
	id, args := reasons.Read, reasons.Args{"n": gpus, "others": others, "at": j.Step.StartedAt.UTC().Format(time.TimeOnly)}
	if others > 0 {
		id = reasons.ReadParts
	}
	said := reasons.Text(id, args)
	if len(never) > 0 {
		said = reasons.Text(reasons.NoReader, reasons.Args{"why": said, "names": reasons.Some(never)})
	}
	return Progress{Done: true, Message: said}, nil
}
