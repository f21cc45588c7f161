// Package slurm is the scheduler of the simulated fleet: jobs that come, run
// and end, nodes that are drained and resumed, and the REST interface of
// slurmrestd (data parser v0.0.40 to v0.0.42) over them.
package slurm

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// Times of the scheduler.
const (
	nodeTimeout = 5 * time.Second   // until a node that does not respond is down
	keepJobs    = 300 * time.Second // how long a finished job is shown (MinJobAge)
	firstJob    = 140
	idleShare   = 10 // one node of so many is left free
)

// States of a job (slurm.h, enum job_states).
const (
	Pending   = "PENDING"
	Running   = "RUNNING"
	Completed = "COMPLETED"
	Failed    = "FAILED"
	NodeFail  = "NODE_FAIL"
	Cancelled = "CANCELLED"
)

// Job is a job of the simulated cluster.
type Job struct {
	ID      uint32
	Name    string
	User    string
	Account string
	State   string
	Reason  string
	Nodes   []string
	GPUs    []int // of each node
	Submit  time.Time
	Start   time.Time
	End     time.Time
	Exit    int
	Signal  int
	PID     int // of the process of GPU 0

	size    int
	util    float64
	length  time.Duration
	program string
}

// Key is the job's name in the inventory.
func (j *Job) Key() string { return fmt.Sprintf("job-%d", j.ID) }

type node struct {
	name    string
	up      bool
	whole   bool
	drain   bool
	forced  bool // set down by an operator
	reason  string
	gone    time.Time // since when it does not respond
	down    bool
	used    []bool // by GPU
	changed time.Time
	boot    time.Time
}

func (n *node) busy() int {
	c := 0
	for _, u := range n.used {
		if u {
			c++
		}
	}
	return c
}

// Fleet is what the scheduler asks of the model.
type Fleet interface {
	Servers() []string
	Config() fleet.Config
	Ready(server string) (up, whole bool)
	SetLoad(server string, gpus []int, l fleet.Load)
}

// Controller schedules jobs on the fleet. Its methods may be called at the same
// time.
type Controller struct {
	fleet Fleet
	led   *ledger.Writer
	token string

	mu     sync.Mutex
	rng    *rand.Rand
	now    time.Time
	nodes  []*node
	byName map[string]*node
	order  []*node // in which jobs get them
	jobs   []*Job
	nextID uint32
	nextPD int
	ends   []end

	resumes []resume

	pendMu  sync.Mutex
	pending []fleet.Change
}

// New makes a controller. FirstID is the id of its first job; 0 means 140.
func New(f Fleet, seed uint64, token string, firstID uint32, led *ledger.Writer, now time.Time) *Controller {
	if firstID == 0 {
		firstID = firstJob
	}
	c := &Controller{
		fleet: f, led: led, token: token, rng: rand.New(rand.NewPCG(seed, 0x51_0c)), now: now,
		byName: map[string]*node{}, nextID: firstID, nextPD: 210000,
	}
	for _, name := range f.Servers() {
		n := &node{name: name, up: true, whole: true, used: make([]bool, f.Config().GPUs), changed: now, boot: now.Add(-72 * time.Hour)}
		c.nodes = append(c.nodes, n)
		c.byName[name] = n
	}
	// Jobs get nodes in blocks of half a rack, so that a large job spans racks.
	block := max(1, f.Config().ServersPerRack/2)
	blocks := slices.Collect(slices.Chunk(c.nodes, block))
	c.rng.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	c.order = slices.Concat(blocks...)
	return c
}

// NextID returns the id that the next job will have.
func (c *Controller) NextID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nextID
}

// Changed takes a change of the fleet; it is handled at the next step. It may be
// called with the fleet locked.
func (c *Controller) Changed(_ time.Time, e fleet.Change) {
	c.pendMu.Lock()
	defer c.pendMu.Unlock()
	c.pending = append(c.pending, e)
}

// users, accounts and programs of the cluster's jobs.
var mix = []struct{ user, account, name, program string }{
	{"wei", "nlp", "llama-pretrain", "python3"},
	{"amara", "vision", "vit-large", "python3"},
	{"jonas", "nlp", "moe-32b", "python3"},
	{"priya", "speech", "asr-conformer", "torchrun"},
	{"mateo", "bio", "fold-train", "python3"},
	{"hana", "vision", "diffusion-xl", "python3"},
	{"tomasz", "robotics", "rl-sweep", "python"},
	{"leila", "nlp", "rlhf-7b", "torchrun"},
	{"sven", "climate", "gencast", "python3"},
	{"yuki", "nlp", "eval-suite", "python3"},
}

// Start fills the cluster with jobs: a few large ones, then smaller ones, and a
// tenth of the nodes stays free.
func (c *Controller) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := len(c.nodes) - max(1, len(c.nodes)/idleShare)
	sizes := []int{len(c.nodes) / 4, 8, 8, len(c.nodes) / 8, 4, 4}
	for _, s := range sizes {
		if s > 1 && s <= free {
			c.submit(s, 0)
			free -= s
		}
	}
	for i := 0; free > 0; i++ {
		s := min([]int{2, 2, 1}[i%3], free)
		c.submit(s, 0)
		free -= s
	}
	c.schedule()
	for _, j := range c.jobs { // they have run for a while
		if j.State == Running {
			j.Start = c.now.Add(-time.Duration(c.rng.Float64() * 0.8 * float64(j.length))).Truncate(time.Second)
			j.Submit = j.Start.Add(-time.Duration(c.rng.IntN(90)) * time.Second)
		}
	}
}

func (c *Controller) submit(size int, delay time.Duration) {
	m := mix[c.rng.IntN(len(mix))]
	length := time.Duration(4+c.rng.IntN(16)) * time.Minute
	if size >= 4 {
		length = time.Duration(3+c.rng.IntN(20)) * time.Hour
	}
	j := &Job{
		Name: m.name, User: m.user, Account: m.account, program: m.program, size: size, length: length, util: 0.9 + 0.08*c.rng.Float64(),
	}
	c.enqueue(j, delay)
}

func (c *Controller) enqueue(j *Job, delay time.Duration) {
	j.ID = c.nextID
	c.nextID++
	j.State, j.Reason = Pending, "Priority"
	j.Submit = c.now.Add(delay)
	j.PID = c.nextPD
	c.nextPD += 1000 + c.rng.IntN(900)
	c.jobs = append(c.jobs, j)
}

// fit returns nodes for a job, or nil.
func (c *Controller) fit(size int) []*node {
	var out []*node
	for _, n := range c.order {
		if n.up && n.whole && !n.drain && !n.down && !n.forced && n.busy() == 0 {
			if out = append(out, n); len(out) == size {
				return out
			}
		}
	}
	return nil
}

func (c *Controller) schedule() {
	for _, j := range c.jobs {
		if j.State != Pending || j.Submit.After(c.now) {
			continue
		}
		nodes := c.fit(j.size)
		if nodes == nil {
			j.Reason = "Resources"
			continue
		}
		j.State, j.Reason, j.Start = Running, "None", c.now
		for i := range c.fleet.Config().GPUs {
			j.GPUs = append(j.GPUs, i)
		}
		slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
		for _, n := range nodes {
			j.Nodes = append(j.Nodes, n.name)
		}
		c.place(j)
		c.note(j)
	}
}

func (c *Controller) note(j *Job) {
	msg := fmt.Sprintf("%s of %s on %d nodes", j.Name, j.User, len(j.Nodes))
	if j.State == Failed || j.State == NodeFail {
		msg += fmt.Sprintf(", exit code %d:%d", j.Exit, j.Signal)
	}
	c.led.Write(ledger.Entry{
		Time: c.now, Kind: ledger.KindJob, Device: j.Key(), Protocol: "slurm", Record: uint64(j.ID), Type: schemas.EventWorkloadState,
		Code:    j.State,
		Message: msg, Targets: j.Nodes,
	})
}

func (c *Controller) finish(j *Job, state string, exit, signal int) {
	if j.State != Running {
		return
	}
	j.State, j.End, j.Exit, j.Signal = state, c.now, exit, signal
	switch state {
	case Failed:
		j.Reason = "NonZeroExitCode"
	case NodeFail:
		j.Reason = "NodeDown"
	}
	for _, name := range j.Nodes {
		n := c.byName[name]
		for _, i := range j.GPUs {
			if i < len(n.used) {
				n.used[i] = false
			}
		}
		n.changed = c.now
		c.fleet.SetLoad(name, j.GPUs, fleet.Load{})
	}
	c.note(j)
	// What failed is submitted again; what ended makes room for another.
	delay := time.Duration(8+c.rng.IntN(12)) * time.Second
	if state == Completed {
		c.submit(j.size, delay)
		return
	}
	c.enqueue(&Job{
		Name: j.Name, User: j.User, Account: j.Account, program: j.program, size: j.size, length: j.length, util: j.util,
	}, delay)
}

// Step moves the scheduler to the given time.
func (c *Controller) Step(now time.Time) {
	c.pendMu.Lock()
	pending := c.pending
	c.pending = nil
	c.pendMu.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	for _, e := range pending {
		c.handle(e)
	}
	c.operate()
	c.ends = slices.DeleteFunc(c.ends, func(e end) bool {
		if e.at.After(now) {
			return false
		}
		for _, j := range c.jobs {
			if j.ID == e.id {
				c.finish(j, Failed, e.exit, e.signal)
				break
			}
		}
		return true
	})
	for _, n := range c.nodes {
		n.up, n.whole = c.fleet.Ready(n.name)
		switch {
		case n.up:
			if n.down {
				n.down = false
				n.changed, n.boot = now, now
			}
			n.gone = time.Time{}
		case n.gone.IsZero():
			n.gone = now
		case !n.down && now.Sub(n.gone) >= nodeTimeout:
			n.down, n.changed = true, now
			if !n.drain {
				n.reason = "Not responding"
			}
			for _, j := range c.jobs {
				if j.State == Running && slices.Contains(j.Nodes, n.name) {
					c.finish(j, NodeFail, 0, 0)
				}
			}
		}
	}
	for _, j := range slices.Clone(c.jobs) {
		if j.State == Running && j.length > 0 && now.Sub(j.Start) > j.length && len(j.Nodes) < 4 {
			c.finish(j, Completed, 0, 0)
		}
	}
	c.jobs = slices.DeleteFunc(c.jobs, func(j *Job) bool { return !j.End.IsZero() && now.Sub(j.End) > keepJobs })
	c.schedule()
}

func (c *Controller) handle(e fleet.Change) {
	switch e.Kind {
	case fleet.GPULost, fleet.NICDown: // the job's ranks there die, and with them the job
		for _, j := range slices.Clone(c.jobs) {
			if j.State != Running || !slices.Contains(j.Nodes, e.Server) {
				continue
			}
			if e.Kind == fleet.NICDown && len(j.Nodes) < 2 {
				continue
			}
			if e.Kind == fleet.GPULost && !slices.Contains(j.GPUs, e.GPU) {
				continue
			}
			c.finish(j, Failed, 1, 6)
		}
	}
}

// FailAfter ends a running job as failed when the time has passed.
func (c *Controller) FailAfter(id uint32, d time.Duration, exit, signal int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, end{id, c.now.Add(d), exit, signal})
}

type end struct {
	id           uint32
	at           time.Time
	exit, signal int
}

// Running returns copies of the running jobs, by id.
func (c *Controller) Running() []Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Job
	for _, j := range c.jobs {
		if j.State == Running {
			k := *j
			k.Nodes, k.GPUs = slices.Clone(j.Nodes), slices.Clone(j.GPUs)
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
