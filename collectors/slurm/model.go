package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// maxHosts bounds the nodes of one job.
const maxHosts = 1 << 16

var errHosts = errors.New("malformed host list")

// expand writes out a host list such as "gpu-r01-[01-03,07],login1".
func expand(list string) ([]string, error) {
	var out []string
	for _, part := range splitTop(list) {
		hosts, err := expandOne(part, maxHosts-len(out))
		if err != nil {
			return nil, fmt.Errorf("%w: %.60q", err, list)
		}
		out = append(out, hosts...)
	}
	return out, nil
}

// splitTop splits at commas outside of brackets.
func splitTop(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		}
	}
	out = append(out, s[from:])
	return slices.DeleteFunc(out, func(p string) bool { return strings.TrimSpace(p) == "" })
}

func expandOne(s string, room int) ([]string, error) {
	s = strings.TrimSpace(s)
	open := strings.IndexByte(s, '[')
	if open < 0 {
		if strings.ContainsAny(s, "]") || room < 1 {
			return nil, errHosts
		}
		return []string{s}, nil
	}
	end := strings.IndexByte(s[open:], ']')
	if end < 0 {
		return nil, errHosts
	}
	end += open
	tails := []string{""}
	if rest := s[end+1:]; rest != "" {
		var err error
		if tails, err = expandOne(rest, room); err != nil {
			return nil, err
		}
	}
	ids, err := ranges(s[open+1:end], room)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, id := range ids {
		for _, t := range tails {
			if len(out) >= room {
				return nil, errHosts
			}
			out = append(out, s[:open]+id+t)
		}
	}
	return out, nil
}

// ranges writes out "01-03,07", keeping leading zeros.
func ranges(s string, room int) ([]string, error) {
	var out []string
	for p := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(p), "-")
		a, err := strconv.Atoi(lo)
		if err != nil || a < 0 {
			return nil, errHosts
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(hi); err != nil || b < a || b-a >= room-len(out) {
				return nil, errHosts
			}
		}
		for n := a; n <= b; n++ {
			if len(out) >= room {
				return nil, errHosts
			}
			out = append(out, fmt.Sprintf("%0*d", len(lo), n))
		}
	}
	return out, nil
}

// gpus rest.Names the GPUs of a job, where the controller says their indexes: one
// detail a node, such as "gpu:h100:4(IDX:0-2,7)".
func gpus(nodes []string, details []string) []string {
	if len(details) != len(nodes) {
		return nil
	}
	var out []string
	for i, d := range details {
		for _, g := range splitTop(strings.NewReplacer("(", "[", ")", "]").Replace(d)) {
			if !strings.HasPrefix(g, "gpu") {
				continue
			}
			_, idx, ok := strings.Cut(g, "IDX:")
			if !ok {
				continue
			}
			ids, err := ranges(strings.TrimRight(idx, "]"), 1024)
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
