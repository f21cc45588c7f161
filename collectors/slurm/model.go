package slurm

import (
	"encoding/json"
	"strings"

	rest "auspex/internal/slurm"
)

// exit is a wait status (v0.0.38) or its parts.
type exit struct {
	code, signal int64
	set          bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *exit) UnmarshalJSON(b []byte) error {
	var obj struct {
		ReturnCode rest.Number `json:"return_code"`
		Signal     struct {
			ID       rest.Number `json:"id"`
			SignalID rest.Number `json:"signal_id"`
		} `json:"signal"`
	}
	if len(b) > 0 && b[0] == '{' {
		if json.Unmarshal(b, &obj) == nil {
			sig := obj.Signal.ID
			if !sig.Set {
				sig = obj.Signal.SignalID
			}
			*e = exit{obj.ReturnCode.N, sig.N, obj.ReturnCode.Set || sig.Set}
		}
		return nil
	}
	var n rest.Number
	_ = n.UnmarshalJSON(b)
	if n.Set {
		*e = exit{n.N >> 8 & 0xff, n.N & 0x7f, true}
	}
	return nil
}

// status is the exit code as a shell gives it: 128 and the signal, or the code.
func (e exit) status() int64 {
	if e.signal > 0 {
		return 128 + e.signal
	}
	return e.code
}

type job struct {
	ID        rest.Number `json:"job_id"`
	Name      string      `json:"name"`
	User      string      `json:"user_name"`
	Account   string      `json:"account"`
	Partition string      `json:"partition"`
	State     rest.Names  `json:"job_state"`
	Reason    string      `json:"state_reason"`
	Nodes     string      `json:"nodes"`
	Submit    rest.Number `json:"submit_time"`
	Start     rest.Number `json:"start_time"`
	End       rest.Number `json:"end_time"`
	Exit      exit        `json:"exit_code"`
	Gres      rest.Names  `json:"gres_detail"`
}

// code is the one word that says whether a node can be used: DOWN before DRAIN
// before what it does. NOT_RESPONDING is left to the controller to judge: it
// comes for a moment with each resume.
func code(states []string) string {
	found := "UNKNOWN"
	if len(states) > 0 {
		found = states[0]
	}
	for _, s := range states {
		switch s {
		case "DOWN", "FAIL", "FAILING":
			return "DOWN"
		case "DRAIN", "DRAINED", "DRAINING":
			found = "DRAIN"
		}
	}
	return found
}

// gpus rest.Names the GPUs of a job, where the controller says their indexes: one
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
