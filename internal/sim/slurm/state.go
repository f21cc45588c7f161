package slurm

import (
	"slices"
	"time"

	"auspex/internal/sim/fleet"
)

// operatorDelay is how long a node that was drained in the run before waits for
// somebody to resume it.
const operatorDelay = 15 * time.Second

// State is what a scheduler keeps when it stops.
type State struct {
	NextJob uint32      `json:"next_job"`
	NextPID int         `json:"next_pid"`
	Jobs    []JobState  `json:"jobs"`
	Nodes   []NodeState `json:"nodes"`
}

// JobState is a job with what only the scheduler knows of it.
type JobState struct {
	Job
	Size    int           `json:"size"`
	Util    float64       `json:"util"`
	Length  time.Duration `json:"length"`
	Program string        `json:"program"`
}

// NodeState is what an operator or the scheduler has said of a node.
type NodeState struct {
	Name    string    `json:"name"`
	Drain   bool      `json:"drain,omitempty"`
	Forced  bool      `json:"forced,omitempty"`
	Down    bool      `json:"down,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Changed time.Time `json:"changed"`
	Boot    time.Time `json:"boot"`
}

// State returns a copy of what the scheduler keeps.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := State{NextJob: c.nextID, NextPID: c.nextPD}
	for _, j := range c.jobs {
		k := JobState{Job: *j, Size: j.size, Util: j.util, Length: j.length, Program: j.program}
		k.Nodes, k.GPUs = slices.Clone(j.Nodes), slices.Clone(j.GPUs)
		st.Jobs = append(st.Jobs, k)
	}
	for _, n := range c.nodes {
		st.Nodes = append(st.Nodes, NodeState{
			Name: n.name, Drain: n.drain, Forced: n.forced, Down: n.down, Reason: n.reason, Changed: n.changed, Boot: n.boot,
		})
	}
	return st
}

// Restore goes on with the jobs and nodes of a run before; it takes the place
// of [Controller.Start]. Jobs on servers that have booted meanwhile have
// failed. Drained nodes are resumed by an operator after a while.
func (c *Controller) Restore(st State, booted []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID, c.nextPD = max(c.nextID, st.NextJob), max(c.nextPD, st.NextPID)
	for _, k := range st.Nodes {
		n := c.byName[k.Name]
		if n == nil {
			continue
		}
		n.drain, n.forced, n.down, n.reason, n.changed, n.boot = k.Drain, k.Forced, k.Down, k.Reason, k.Changed, k.Boot
		if slices.Contains(booted, n.name) {
			n.boot = c.now
		}
		if n.drain || n.forced {
			c.resumes = append(c.resumes, resume{n.name, c.now.Add(operatorDelay)})
		}
	}
	for i := range st.Jobs {
		k := &st.Jobs[i]
		j := k.Job
		j.size, j.util, j.length, j.program = k.Size, k.Util, k.Length, k.Program
		if j.State == Running && slices.ContainsFunc(j.Nodes, func(n string) bool { return c.byName[n] == nil }) {
			continue // of a larger fleet
		}
		c.jobs = append(c.jobs, &j)
		if j.State == Running {
			c.place(&j)
		}
	}
	for _, j := range slices.Clone(c.jobs) {
		if j.State == Running && slices.ContainsFunc(j.Nodes, func(n string) bool { return slices.Contains(booted, n) }) {
			c.finish(j, NodeFail, 0, 0)
		}
	}
}

// place puts the load of a running job on its nodes.
func (c *Controller) place(j *Job) {
	load := fleet.Load{Util: j.util, Memory: 0.86, PID: j.PID, Name: j.program, Phase: float64(j.ID%50) * 6}
	for _, name := range j.Nodes {
		n := c.byName[name]
		for _, i := range j.GPUs {
			if i < len(n.used) {
				n.used[i] = true
			}
		}
		c.fleet.SetLoad(name, j.GPUs, load)
	}
}

type resume struct {
	node string
	at   time.Time
}

// operate resumes what an operator has found drained.
func (c *Controller) operate() {
	c.resumes = slices.DeleteFunc(c.resumes, func(r resume) bool {
		if r.at.After(c.now) {
			return false
		}
		if n := c.byName[r.node]; n.drain || n.forced {
			n.drain, n.forced, n.reason, n.changed = false, false, "", c.now
			c.noteNode(n)
		}
		return true
	})
}
