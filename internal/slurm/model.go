package slurm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Number is an integer, or the object that slurmrestd writes since v0.0.39.
type Number struct {
	N   int64
	Set bool // false: absent or infinite
}

// UnmarshalJSON implements [json.Unmarshaler]; what is no number is not set.
func (n *Number) UnmarshalJSON(b []byte) error {
	s, given := strings.Trim(string(b), `"`), true
	if len(b) > 0 && b[0] == '{' { // by hand: a list of 50,000 jobs has some hundred thousand of them
		s = ""
		Members(b, func(name, value []byte) {
			switch string(name) {
			case "set":
				given = given && string(value) == "true"
			case "infinite":
				given = given && string(value) != "true"
			case "number":
				s = strings.Trim(string(value), `"`)
			}
		})
	}
	if !given {
		return nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && f > -1e15 && f < 1e15 {
		n.N, n.Set = int64(f), true
	}
	return nil
}

// Time reads the number as Unix seconds; zero when it is none.
func (n Number) Time() time.Time {
	if !n.Set || n.N <= 0 || n.N > 1<<40 {
		return time.Time{}
	}
	return time.Unix(n.N, 0).UTC()
}

// Names is a list of strings, or the one string of older versions.
type Names []string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Names) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*l = nil
		if s != "" {
			*l = Names{s}
		}
		return nil
	}
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*l = list
	}
	return nil
}

// Node is a node as the controller shows it.
type Node struct {
	Name    string `json:"name"`
	State   Names  `json:"state"`
	Flags   Names  `json:"state_flags"` // v0.0.38
	Reason  string `json:"reason"`
	Changed Number `json:"reason_changed_at"`
	User    string `json:"reason_set_by_user"`
	// Partitions are those that it is in.
	Partitions Names  `json:"partitions"`
	Boot       Number `json:"boot_time"` // by the node's clock; not set where scontrol writes lines
}

// States returns base state and flags in upper case, in order.
func (n *Node) States() []string {
	var out []string
	for _, s := range slices.Concat(n.State, n.Flags) {
		for _, p := range strings.FieldsFunc(strings.ToUpper(s), func(r rune) bool { return r == '+' || r == ' ' || r == ',' }) {
			if p = strings.Trim(p, "*~#$%@!-^"); p != "" && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// Error is a complaint of slurmrestd within an answer.
type Error struct {
	Description string `json:"description"`
	Message     string `json:"error"`
	Number      int    `json:"error_number"`
	Errno       int    `json:"errno"` // v0.0.38
}

// The numbers of errors that say that nothing was done (slurm_errno.h), which slurmrestd gives with its words.
const (
	errAccessDenied    = 2002
	errUserMissing     = 2010
	errInvalidNodeName = 2018
)

// refuses reports whether the controller has done nothing for certain.
func (e Error) refuses() bool {
	return slices.Contains([]int{errAccessDenied, errUserMissing, errInvalidNodeName}, e.number()) ||
		slices.ContainsFunc(refusals, func(r string) bool { return strings.Contains(e.Message, r) })
}

// noNode reports whether it can be said of a node that the controller does not have.
func (e Error) noNode() bool { return e.number() == errInvalidNodeName || e.number() == 0 }

func (e Error) number() int { return cmp.Or(e.Number, e.Errno) }

// String says number, error and description.
func (e Error) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", e.number(), e.Message, e.Description))
}
