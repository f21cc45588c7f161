package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ErrNoAccounting says that slurmrestd does not offer what slurmdbd keeps, or does not reach it.
var ErrNoAccounting = errors.New("slurm keeps no accounting that can be read")

// Text is a string, or a number that is written in its place.
type Text string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = Text(s)
		return nil
	}
	var n Number
	if _ = n.UnmarshalJSON(b); n.Set {
		*t = Text(strconv.FormatInt(n.N, 10))
	}
	return nil
}

// Exit is how a job or a step ended: a wait status (v0.0.38), or its parts.
type Exit struct {
	Code, Signal int64
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Exit) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var obj struct {
			ReturnCode Number `json:"return_code"`
			Signal     struct {
				ID       Number `json:"id"`
				SignalID Number `json:"signal_id"`
			} `json:"signal"`
		}
		if json.Unmarshal(b, &obj) == nil {
			*e = Exit{obj.ReturnCode.N, cmp.Or(obj.Signal.ID.N, obj.Signal.SignalID.N)}
		}
		return nil
	}
	var n Number
	if _ = n.UnmarshalJSON(b); n.Set {
		*e = Exit{n.N >> 8 & 0xff, n.N & 0x7f}
	}
	return nil
}

// Status is the exit code as a shell gives it: 128 and the signal, or the code.
func (e Exit) Status() int64 {
	if e.Signal > 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// Past is a job as slurmdbd keeps it (slurmrestd, /slurmdb/…/jobs).
type Past struct {
	ID        Number `json:"job_id"`
	Name      string `json:"name"`
	User      string `json:"user"`
	Account   string `json:"account"`
	Partition string `json:"partition"`
	Nodes     string `json:"nodes"` // a host list
	Exit      Exit   `json:"exit_code"`
	State     struct {
		Current Names `json:"current"`
	} `json:"state"`
	Time struct {
		Submission Number `json:"submission"`
		Start      Number `json:"start"`
		End        Number `json:"end"`
	} `json:"time"`
	Array struct {
		Job  Number `json:"job_id"`
		Task Number `json:"task_id"`
	} `json:"array"`
	Het struct {
		Job    Number `json:"job_id"`
		Offset Number `json:"job_offset"`
	} `json:"het"`
	Steps []Step `json:"steps"`
}

// Step is a step of a job.
type Step struct {
	State Names `json:"state"`
	Exit  Exit  `json:"exit_code"`
	Step  struct {
		ID   Text   `json:"id"` // "7.0" or "7.batch"; before v0.0.39 a number
		Name string `json:"name"`
	} `json:"step"`
}

// Failed is the first step that ended with an error; of a job whose script did, that is its step batch.
func (p *Past) Failed() (s Step, ok bool) {
	// slurmrestd of 22.05 (v0.0.38) tells the state of a step that failed, and 0 as its exit code.
	bad := func(s Step) bool { return s.Exit.Status() != 0 || len(s.State) > 0 && s.State[0] == "FAILED" }
	own := func(s Step) bool { // of the job's work, and not of what Slurm runs around it
		return bad(s) && !strings.Contains(string(s.Step.ID)+s.Step.Name, "extern") && !strings.Contains(string(s.Step.ID)+s.Step.Name, "batch")
	}
	for _, f := range []func(Step) bool{own, bad} {
		if i := slices.IndexFunc(p.Steps, f); i >= 0 {
			return p.Steps[i], true
		}
	}
	return s, false
}

// PastOf returns what slurmdbd keeps of a job: of one that was started several times, each time.
func (c *Client) PastOf(ctx context.Context, id int64) ([]Past, error) {
	return c.past(ctx, "job/"+strconv.FormatInt(id, 10), nil)
}

// PastSince returns the jobs of slurmdbd that ran between two times of the controller (Unix seconds), at most so many of them:
// a rest is counted.
func (c *Client) PastSince(ctx context.Context, since, until int64, most int) (jobs []Past, rest int, err error) {
	q := url.Values{"start_time": {"uts" + strconv.FormatInt(since, 10)}, "end_time": {"uts" + strconv.FormatInt(until, 10)}}
	jobs, err = c.past(ctx, "jobs?"+q.Encode(), func(n int) bool {
		if n >= most {
			rest++
		}
		return n < most
	})
	return jobs, rest, err
}

func (c *Client) past(ctx context.Context, path string, room func(n int) bool) (jobs []Past, err error) {
	version, err := c.Version(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.list(ctx, "/slurmdb/"+version+"/"+path, "jobs", 0, func(raw []byte) {
		var p Past
		if json.Unmarshal(raw, &p) == nil && p.ID.Set && (room == nil || room(len(jobs))) {
			jobs = append(jobs, p)
		}
	})
	switch {
	case ctx.Err() != nil, errors.Is(err, ErrAuth):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %s /slurmdb: %w", ErrNoAccounting, http.MethodGet, err)
	}
	return jobs, nil
}
