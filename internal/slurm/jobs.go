package slurm

import (
	"context"
	"fmt"
	"slices"
)

// Job is a job as the controller shows it, as far as somebody who ends it wants to know.
type Job struct {
	ID    Number `json:"job_id"`
	Name  string `json:"name"`
	User  string `json:"user_name"`
	State Names  `json:"job_state"`
	Nodes string `json:"nodes"` // a host list
}

// Running returns the jobs that have a node now, those on their way out included. The controller
// lists all of its jobs; a host list that cannot be read is an error, since it may name the node.
func (c *Client) Running(ctx context.Context, node string) (out []Job, err error) {
	var all struct {
		answer
		Jobs *[]Job `json:"jobs"`
	}
	if err := c.Get(ctx, "jobs", &all); err != nil {
		return nil, err
	}
	if len(all.Errors) > 0 { // an empty list beside an error says nothing of the node
		return nil, fmt.Errorf("%w: jobs: %s", ErrProtocol, all.Errors[0])
	}
	if all.Jobs == nil {
		return nil, fmt.Errorf("%w: it lists no jobs, not even none", ErrProtocol)
	}
	return having(*all.Jobs, node)
}

// having returns those jobs that have a node.
func having(jobs []Job, node string) (out []Job, err error) {
	for _, j := range jobs {
		if !slices.ContainsFunc(j.State, func(s string) bool {
			return slices.Contains([]string{"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}, s)
		}) {
			continue
		}
		nodes, err := Hosts(j.Nodes)
		if err != nil {
			return nil, err
		}
		if slices.Contains(nodes, node) {
			out = append(out, j)
		}
	}
	return out, nil
}
