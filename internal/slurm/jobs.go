package slurm

import (
	"cmp"
	"context"
	"encoding/json"
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
	var jobs []Job
	var bad error
	_, err = c.List(ctx, "jobs", "jobs", 0, func(raw []byte) {
		held := true // what is not understood may hold the node
		Members(raw, func(name, value []byte) {
			if string(name) == "job_state" && string(Word(value)) == "PENDING" {
				held = false
			}
		})
		if !held {
			return
		}
		var j Job
		if err := json.Unmarshal(raw, &j); err != nil {
			bad = fmt.Errorf("%w: jobs: %w", ErrProtocol, err)
		}
		jobs = append(jobs, j)
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, err
	}
	return having(jobs, node)
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
