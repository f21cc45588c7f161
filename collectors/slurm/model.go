package slurm

import (
	"strconv"
	"strings"
	"time"

	rest "auspex/internal/slurm"
)

type job struct {
	ID        rest.Number `json:"job_id"`
	Name      string      `json:"name"`
	User      string      `json:"user_name"`
	Account   string      `json:"account"`
	Partition string      `json:"partition"`
	State     rest.Names  `json:"job_state"`
	Nodes     string      `json:"nodes"`
	Submit    rest.Number `json:"submit_time"`
	Start     rest.Number `json:"start_time"`
	End       rest.Number `json:"end_time"`
	Exit      rest.Exit   `json:"exit_code"`
	Gres      rest.Names  `json:"gres_detail"`
	Array     rest.Number `json:"array_job_id"` // 0 is none
	Task      rest.Number `json:"array_task_id"`
	Het       rest.Number `json:"het_job_id"` // 0 is none
	HetOffset rest.Number `json:"het_job_offset"`

	step *rest.Step // the one that failed, where accounting says it
	past bool       // it was found in accounting
}

// ofPast is a job of accounting.
func ofPast(p *rest.Past) *job {
	j := &job{
		ID: p.ID, Name: p.Name, User: p.User, Account: p.Account, Partition: p.Partition, State: p.State.Current, Nodes: p.Nodes,
		Submit: p.Time.Submission, Start: p.Time.Start, End: p.Time.End, Exit: p.Exit, Array: p.Array.Job, Task: p.Array.Task,
		Het: p.Het.Job, HetOffset: p.Het.Offset, past: true,
	}
	if s, ok := p.Failed(); ok {
		j.step = &s
	}
	return j
}

// place is where a job stands in an array or in a heterogeneous job, as attributes.
func (j *job) place() (out [][2]string) {
	if j.Array.N > 0 && j.Task.Set {
		out = append(out, [2]string{"array_job", workload(j.Array.N)}, [2]string{"array_task", strconv.FormatInt(j.Task.N, 10)})
	}
	if j.Het.N > 0 {
		out = append(out, [2]string{"het_job", workload(j.Het.N)}, [2]string{"het_component", strconv.FormatInt(j.HetOffset.N, 10)})
	}
	return out
}

// glance is what is read of each job of a list, to see whether it is to be read at all.
type glance struct {
	id, start int64
	state     string
}

// glimpse reads as much of a job; the words of states are not copied.
func glimpse(raw []byte) (g glance) {
	rest.Members(raw, func(name, value []byte) {
		var n rest.Number
		switch string(name) {
		case "job_id":
			g.id, _ = rest.ID(value)
		case "start_time":
			_ = n.UnmarshalJSON(value)
			g.start = n.N
		case "job_state", "state":
			g.state = stateOf(rest.Word(value))
		}
	})
	return g
}

// states are the words for the states of jobs (slurm.h, enum job_states, and its flags), so that they are not copied.
var states = func() map[string]string {
	all := map[string]string{"COMPLETING": stateRunning} // a flag in newer versions: the end is not yet there
	for _, s := range []string{
		statePending, stateRunning, "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
		"DEADLINE", "OUT_OF_MEMORY", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "STOPPED", "SIGNALING",
		"STAGE_OUT", "RESIZING", "REVOKED",
	} {
		all[s] = s
	}
	return all
}()

// waiting reports whether a job in this state has no place yet.
func waiting(state string) bool {
	switch state {
	case statePending, "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT":
		return true
	}
	return false
}

const (
	statePending = "PENDING"
	stateRunning = "RUNNING"
	stateUnknown = "UNKNOWN"
)

// stateOf is the state that a word says.
func stateOf(word []byte) string {
	if s, ok := states[string(word)]; ok {
		return s
	}
	s := strings.ToUpper(string(word))
	if known, ok := states[s]; ok {
		return known
	}
	return s
}

// oldest is before all jobs and nodes: a time before it is that of a clock that was not set.
var oldest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// unset reports whether a time is that of a clock that was not set.
func unset(n rest.Number) bool { return n.Set && n.N > 0 && n.N < oldest.Unix() }

// moment reads a time; zero where it is none, or of a clock that was not set.
func moment(n rest.Number) time.Time {
	if unset(n) {
		return time.Time{}
	}
	return n.Time()
}

// code is the one word that says whether a node can be used: DOWN before DRAIN
// before what it does. NOT_RESPONDING is left to the controller to judge: it
// comes for a moment with each resume.
func code(states []string) string {
	found := stateUnknown
	if len(states) > 0 {
		found = states[0]
	}
	for _, s := range states {
		switch s {
		case codeDown, "FAIL", "FAILING":
			return codeDown
		case codeDrain, "DRAINED", "DRAINING":
			found = codeDrain
		}
	}
	return found
}

const (
	codeDown  = "DOWN"
	codeDrain = "DRAIN"
)

// gpus names the GPUs of a job, where the controller says their indexes: one
// detail a node, such as "gpu:h100:4(IDX:0-2,7)".
func gpus(nodes []string, details []string) []string {
	if len(details) != len(nodes) {
		return nil
	}
	var out []string
	for i, d := range details {
		for _, g := range rest.SplitTop(strings.NewReplacer("(", "[", ")", "]").Replace(d)) {
			if !strings.HasPrefix(g, "gpu") {
				continue
			}
			_, idx, ok := strings.Cut(g, "IDX:")
			if !ok {
				continue
			}
			ids, err := rest.Ranges(strings.TrimRight(idx, "]"), 1024)
			if err != nil {
				continue
			}
			for _, id := range ids {
				out = append(out, nodes[i]+"/gpu"+id)
			}
		}
	}
	return out
}
