package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/openconfig/gnoi/healthz"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/target"
	"auspex/schemas"
)

// validate is the remediator of the rung of that name: tests of a GPU, or of all of a server.
type validate struct{ hand }

// usual is the level where the policy names none: GPUs work.
const usual = "2"

func levelOf(s control.Step) string { return cmp.Or(s.With["level"], usual) }

// health is the connection with the level of a step.
func (v validate) health(ctx context.Context, s control.Step) (call, *types.Path, error) {
	path, err := scope(s)
	if err != nil {
		return call{}, nil, err
	}
	c, err := v.open(metadata.AppendToOutgoingContext(ctx, target.MetaLevel, levelOf(s)), s)
	return c, path, err
}

// ask asks what became of a step.
func (c call) ask(path *types.Path) (*healthz.ComponentStatus, error) {
	ctx, done := context.WithTimeout(c.ctx, c.timeout)
	defer done()
	res, err := c.health.Get(ctx, &healthz.GetRequest{Path: path})
	return res.GetComponent(), err
}

// Plan implements control.Remediator.
func (v validate) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	c, path, err := v.health(metadata.AppendToOutgoingContext(ctx, target.MetaWould, "1"), s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	defer c.end()
	would, err := c.ask(path)
	if err != nil {
		return schemas.Sentence{}, told(err)
	}
	return messages.New(messages.WouldValidate, messages.Args{"gpus": names(would), "server": s.Server, "level": levelOf(s)}), nil
}

// names lists the GPUs of a status.
func names(s *healthz.ComponentStatus) string {
	var out []string
	for _, sub := range s.GetSubcomponents() {
		if e := sub.GetPath().GetElem(); len(e) > 1 {
			out = append(out, e[1].GetKey()["name"])
		}
	}
	return cmp.Or(strings.Join(out, ", "), "no GPU")
}

// Apply implements control.Remediator. A validation takes longer than a call may: what the agent
// has begun, it was asked.
func (v validate) Apply(ctx context.Context, s control.Step) error {
	c, path, err := v.health(ctx, s)
	if err != nil {
		return err
	}
	defer c.end()
	if _, err := c.ask(path); err != nil && status.Code(err) != codes.NotFound { // nothing was sent that could be done
		return fmt.Errorf("%w: %w", control.ErrRejected, told(err))
	}
	short, done := context.WithTimeout(c.ctx, c.timeout)
	_, err = c.health.Check(short, &healthz.CheckRequest{Path: path})
	done()
	switch status.Code(err) {
	case codes.Aborted:
		return nil
	case codes.DeadlineExceeded:
		if _, lost := c.ask(path); lost == nil || status.Code(lost) == codes.Aborted {
			return nil
		}
	}
	return told(err)
}

// Verify implements control.Remediator: the agent has a report, and no test has failed.
func (v validate) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	c, path, err := v.health(ctx, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	defer c.end()
	args := messages.Args{"server": s.Server}
	got, err := c.ask(path)
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound:
		return control.Pending, messages.New(messages.AgentUnaware, args), nil
	case codes.Aborted, codes.Unknown: // it could not be done; whether it was, is not known
		args["words"] = status.Convert(err).Message()
		verdict := control.Pending
		if status.Code(err) == codes.Aborted {
			verdict = control.Failed
		}
		return verdict, messages.New(messages.AgentSays, args), nil
	default:
		return control.Pending, schemas.Sentence{}, told(err)
	}
	if got.GetStatus() == healthz.Status_STATUS_UNSPECIFIED {
		return control.Pending, messages.New(messages.AgentAtIt, args), nil
	}
	found, err := c.report(s.ID)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	if v.settings.Validations != nil { // before its outcome is, so that it is there for whoever reads that
		if err := v.settings.Validations.Keep(ctx, found.kept(s)); err != nil {
			return control.Pending, schemas.Sentence{}, err
		}
	}
	args["gpus"], args["level"] = names(got), levelOf(s)
	if got.GetStatus() != healthz.Status_STATUS_HEALTHY {
		args["findings"] = found.findings()
		return control.Failed, messages.New(messages.ValidationFailed, args), nil
	}
	for _, result := range []string{"passed", "warned", "skipped"} {
		args[result] = found.count(result)
	}
	return control.Verified, messages.New(messages.ValidationPassed, args), nil
}

// report is that of an agent, as JSON has it.
type report struct {
	Level int       `json:"level"`
	GPUs  []int     `json:"gpus"`
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	Tests []struct {
		Name    string `json:"name"`
		GPU     int    `json:"gpu"`
		Result  string `json:"result"`
		Message string `json:"message"`
	} `json:"tests"`
}

const (
	maxReport   = 1 << 20 // bytes
	maxFindings = 4       // that a sentence names
)

// report fetches the report of a validation.
func (c call) report(id string) (r report, err error) {
	ctx, done := context.WithTimeout(c.ctx, c.timeout)
	defer done()
	from, err := c.health.Artifact(ctx, &healthz.ArtifactRequest{Id: id})
	if err != nil {
		return r, told(err)
	}
	var b []byte
	for {
		part, err := from.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r, told(err)
		}
		if b = append(b, part.GetBytes()...); len(b) > maxReport {
			return r, fmt.Errorf("agent: its report has more than %d bytes", maxReport)
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("agent: its report cannot be read: %w", err)
	}
	return r, nil
}

// verdicts are the results of tests as a validation has them.
var verdicts = map[string]string{"passed": schemas.CheckPassed, "warned": schemas.CheckWarned, "failed": schemas.CheckFailed}

// toldBySome are the tests of a GPU that only some boards and levels have: without them it is not seen how it is.
var toldBySome = []string{"ecc-uncorrected", "nvlink", "pcie-width", "pcie-generation"}

// kept is a report as it is kept with its server.
func (r *report) kept(s control.Step) schemas.Validation {
	v := schemas.Validation{ID: s.ID, Server: s.Server, Level: r.Level, Began: r.Began, Ended: r.Ended, Checks: []schemas.ValidationCheck{}}
	if s.Target != s.Server {
		v.Part = s.Target
	}
	made := map[string]bool{}
	for _, t := range r.Tests {
		c := schemas.ValidationCheck{Name: t.Name, Seen: t.Message, Verdict: verdicts[t.Result], Source: schemas.SeenByAgent}
		if t.GPU >= 0 {
			c.Part = gpuName(s.Server, t.GPU)
		}
		if c.Verdict == "" { // it was skipped
			c.Verdict, c.Seen, c.Detail = schemas.CheckNotSeen, "", t.Message
		}
		made[c.Part+" "+t.Name] = true
		v.Checks = append(v.Checks, c)
	}
	for _, n := range r.GPUs {
		for _, name := range toldBySome {
			if part := gpuName(s.Server, n); !made[part+" "+name] {
				v.Checks = append(v.Checks, schemas.ValidationCheck{
					Name: name, Part: part, Verdict: schemas.CheckNotSeen, Source: schemas.SeenByAgent, Detail: "the board does not tell it, or not at this level",
				})
			}
		}
	}
	return v
}

func gpuName(server string, n int) string { return fmt.Sprintf("%s/gpu%d", server, n) }

func (r *report) count(result string) (n int) {
	for _, t := range r.Tests {
		if t.Result == result {
			n++
		}
	}
	return n
}

// findings names the tests that failed, and of which GPU.
func (r *report) findings() string {
	var out []string
	for _, t := range r.Tests {
		if t.Result != "failed" {
			continue
		}
		if len(out) == maxFindings {
			out = append(out, fmt.Sprintf("%d more", r.count("failed")-maxFindings))
			break
		}
		of := ""
		if t.GPU >= 0 {
			of = fmt.Sprintf("gpu%d ", t.GPU)
		}
		out = append(out, of+t.Name+": "+t.Message)
	}
	return cmp.Or(strings.Join(out, "; "), "nothing could be tested")
}
