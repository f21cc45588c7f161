package steps

import (
	"context"
	"slices"
	"strings"
	"time"

	"auspex/internal/reasons"
	"auspex/schemas"
)

// Names of the steps that hold a server against what is known of it.
const (
	Inventory  = "inventory"   // its board controller is read, and nothing that was seen of it contradicts the inventory
	NoBaseline = "no_baseline" // of firmware, in place of updates: there is nothing to compare with
	HostReads  = "driver"      // what runs on the server reads each GPU, as its driver alone lets it
)

// Inventories holds what the inventory has of a server against what was seen of it. It changes nothing.
type Inventories struct {
	// Newest returns when each resource of a server was last read by collectors with a view; nil where this process sees no telemetry.
	Newest func(ctx context.Context, server string, by schemas.View) (map[string]time.Time, error)
	// Parts lists what a server has in the inventory.
	Parts func(server string) []schemas.Resource
	// Board reports whether the inventory has a board controller of a server.
	Board func(server string) bool
	// Differences says in what a server differs from what others have seen of it, and what is not known of it that its installation
	// needs, where it is to be installed.
	Differences func(ctx context.Context, server string, installs bool) ([]string, error)
}

// Kinds implements [Driver].
func (v Inventories) Kinds() []string { return []string{Inventory, NoBaseline, HostReads} }

// Do implements [Driver].
func (v Inventories) Do(ctx context.Context, j Job) (Progress, error) {
	if j.Step.Name == NoBaseline {
		return Progress{Done: true, Message: reasons.Text(reasons.NoBaseline, reasons.Args{"words": j.Step.With["model"]})}, nil
	}
	if v.Newest == nil {
		return Progress{Failed: true, Message: reasons.Text(reasons.Blind, nil)}, nil
	}
	view := schemas.ViewHost
	if j.Step.Name == Inventory {
		view = schemas.ViewBoard
		if !v.Board(j.Workflow.Server) {
			return Progress{Failed: true, Message: reasons.Text(reasons.NoBoard, reasons.Args{"server": j.Workflow.Server})}, nil
		}
	}
	newest, err := v.Newest(ctx, j.Workflow.Server, view)
	if err != nil {
		return Progress{}, reasons.Error(reasons.ReadError, reasons.Args{"server": j.Workflow.Server}, err)
	}
	at := j.Step.StartedAt.UTC().Format(time.TimeOnly)
	if j.Step.Name == HostReads {
		late := slices.Clone(j.GPUs)
		late = slices.DeleteFunc(late, func(gpu string) bool { return fresh(newest[gpu], j.Step.StartedAt) })
		for i := range late {
			late[i] = strings.TrimPrefix(late[i], j.Workflow.Server+"/")
		}
		if len(late) > 0 {
			return Progress{Message: reasons.Text(reasons.NoHostRead, reasons.Args{"names": reasons.Some(late)})}, nil
		}
		return Progress{Done: true, Message: reasons.Text(reasons.HostRead, reasons.Args{"n": len(j.GPUs), "at": at})}, nil
	}
	answers := false
	for _, read := range newest {
		answers = answers || fresh(read, j.Step.StartedAt)
	}
	if !answers {
		return Progress{Message: reasons.Text(reasons.BoardUnread, nil)}, nil
	}
	differ, err := v.Differences(ctx, j.Workflow.Server, j.Workflow.Step(Install) != nil)
	if err != nil {
		return Progress{}, err
	}
	if len(differ) > 0 {
		return Progress{Failed: true, Message: reasons.Text(reasons.Differs, reasons.Args{"names": reasons.Some(differ)})}, nil
	}
	return Progress{Done: true, Message: reasons.Text(reasons.AsSeen, reasons.Args{"n": len(j.GPUs), "others": len(v.Parts(j.Workflow.Server)) - len(j.GPUs), "at": at})}, nil
}

// fresh reports whether something was read since a step began.
func fresh(read, began time.Time) bool { return !read.IsZero() && !read.Before(began) }
