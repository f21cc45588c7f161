package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"auspex/client"
	"auspex/schemas"
)

// planned is what control does or would do now, and what holds it back.
type planned struct {
	Action   string               `json:"action"`
	Server   string               `json:"server"`
	Target   string               `json:"target,omitempty"`
	Incident string               `json:"incident,omitempty"`
	Kind     string               `json:"kind"`
	Mode     string               `json:"mode"`
	State    string               `json:"state"`
	Now      string               `json:"now"`     // what is done now, in a sentence
	WhyNot   []string             `json:"why_not"` // not more, each in a sentence
	Rails    []schemas.Rail       `json:"rails"`
	Needed   int                  `json:"approvals_needed,omitempty"`
	Approved []schemas.Approval   `json:"approvals,omitempty"`
	Costs    *schemas.BlastRadius `json:"blast_radius,omitempty"`
	Then     []string             `json:"then,omitempty"` // the rungs after it
}

// plan is what a whole instance does.
type plan struct {
	Steps []planned `json:"steps"`
	// Waiting are the open incidents of which no step was made.
	Waiting []unmade         `json:"incidents_without_steps"`
	Budgets *schemas.Budgets `json:"budgets,omitempty"`
}

// unmade is an open incident without a step, and why it has none.
type unmade struct {
	Incident string `json:"incident"`
	Resource string `json:"resource,omitempty"`
	Fault    string `json:"fault,omitempty"`
	Policy   string `json:"policy,omitempty"`
	Why      string `json:"why"`
}

// unsaid is why, where control did not say it.
const unsaid = "control has not said why: its steps have ended, or it does not run"

// plan says what control would do now, and why not more.
func (o *options) plan() *cobra.Command {
	var server string
	c := &cobra.Command{
		Use: "plan", Short: "Say what control would do now, and why not more", Args: cobra.NoArgs,
		Long: `Say what control would do now, and why not more: each step that waits, runs or is proposed, with its mode, who must approve it, what it
would cost, and each check that does not hold, with its number and its limit. Nothing is changed. Checks are as control saw them last: while
a step waits, at most 15 seconds ago.`,
		Example: `  auspex plan
  auspex plan --server gpu-r01-03 -o yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := o.connect()
			if err != nil {
				return err
			}
			p, err := readPlan(cmd.Context(), api, server)
			if err != nil {
				return explain(err)
			}
			if o.output == "table" {
				return p.write(cmd.OutOrStdout())
			}
			raw, err := json.Marshal(p)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), nil, raw)
		},
	}
	c.Flags().StringVar(&server, "server", "", "of this server alone")
	return c
}

// open are the states of steps that have not ended, those that are under way first.
var open = []string{
	schemas.ActionRunning, schemas.ActionVerifying, schemas.ActionApproved, schemas.ActionWaiting, schemas.ActionProposed,
}

func readPlan(ctx context.Context, api *client.Client, server string) (plan, error) {
	p := plan{Steps: []planned{}, Waiting: []unmade{}}
	has := map[string]bool{}
	for _, state := range open {
		q := url.Values{"state": {state}, "sort": {"time"}}
		if server != "" {
			q.Set("server", server)
		}
		for a, err := range client.All[schemas.Action](ctx, api, "actions", q) {
			if err != nil {
				return p, err
			}
			has[a.Incident] = true
			p.Steps = append(p.Steps, planOf(&a))
		}
	}
	if server != "" {
		return p, nil
	}
	type incident struct {
		ID        string          `json:"id"`
		RootCause schemas.Cause   `json:"root_cause"`
		NoStep    *schemas.NoStep `json:"no_step"`
	}
	for i, err := range client.All[incident](ctx, api, "incidents", url.Values{"status": {"open"}}) {
		if err != nil {
			return p, err
		}
		if has[i.ID] {
			continue
		}
		u := unmade{Incident: i.ID, Resource: i.RootCause.Resource, Fault: i.RootCause.Fault, Why: unsaid}
		if i.NoStep != nil {
			u.Policy, u.Why = i.NoStep.Policy, i.NoStep.Reason
		}
		p.Waiting = append(p.Waiting, u)
	}
	p.Budgets = &schemas.Budgets{}
	return p, api.Do(ctx, client.Request{Method: http.MethodGet, Path: "actions/budgets"}, p.Budgets)
}

func planOf(a *schemas.Action) planned {
	p := planned{
		Action: a.ID, Server: a.Server, Target: a.Target, Incident: a.Incident, Kind: a.Kind, Mode: a.Mode, State: a.State, WhyNot: []string{},
		Rails: a.Rails, Needed: a.ApprovalsNeeded, Approved: a.Approvals, Costs: a.BlastRadius,
	}
	if a.Rung+1 < len(a.Ladder) {
		p.Then = a.Ladder[a.Rung+1:]
	}
	for _, r := range a.Rails {
		if !r.OK {
			p.WhyNot = append(p.WhyNot, fmt.Sprintf("%s (%g, limit %g): %s", r.Name, r.Value, r.Limit, r.Detail))
		}
	}
	if left := a.ApprovalsNeeded - len(a.Approvals); left > 0 {
		p.WhyNot = append(p.WhyNot, fmt.Sprintf("approvals: %d of %d persons approved", len(a.Approvals), a.ApprovalsNeeded))
	}
	switch {
	case a.State == schemas.ActionRunning || a.State == schemas.ActionVerifying || a.State == schemas.ActionApproved:
		p.Now = a.Detail
	case a.State == schemas.ActionWaiting:
		p.Now = "nothing: " + a.Detail
	case slices.Contains([]string{schemas.ModeObserve, schemas.ModeDryRun}, a.Mode):
		p.Now = "nothing in mode " + a.Mode + ": " + a.Detail
	default:
		p.Now = a.Detail
	}
	return p
}

// write writes it for people.
func (p plan) write(out io.Writer) error {
	var b strings.Builder
	for i := range p.Steps {
		p.Steps[i].write(&b)
	}
	if len(p.Steps) == 0 {
		b.WriteString("No step is proposed, waits or is under way.\n")
	}
	for _, u := range p.Waiting {
		fmt.Fprintf(&b, "%s: no step [%s%s]\n  why: %s\n", cmp.Or(u.Resource, u.Incident), u.Incident, joined(", ", u.Fault), u.Why)
	}
	if p.Budgets != nil {
		for _, l := range p.Budgets.Levels {
			fmt.Fprintf(&b, "budget %s: %d of %d used, %d reserved\n", strings.TrimSpace(l.Scope+" "+l.Name), l.Used, l.Limit, l.Reserved)
		}
		if p.Budgets.Breaker.Tripped {
			fmt.Fprintf(&b, "the storm breaker is open: %d ladders, limit %d\n", p.Budgets.Breaker.Ladders, p.Budgets.Breaker.Limit)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (p *planned) write(b *strings.Builder) {
	of := p.Server
	if of == "" || p.Target != "" && p.Target != p.Server {
		of = strings.TrimSpace(of + " (" + p.Target + ")")
	}
	fmt.Fprintf(b, "%s: %s, %s in mode %s [%s%s]\n  now: %s\n", of, p.Kind, p.State, p.Mode, p.Action, joined(", ", p.Incident), p.Now)
	for _, why := range p.WhyNot {
		fmt.Fprintf(b, "  why not more: %s\n", why)
	}
	for _, v := range p.Approved {
		fmt.Fprintf(b, "  approved by %s at %s\n", v.By, v.Time.UTC().Format("15:04:05Z"))
	}
	if c := p.Costs; c != nil {
		fmt.Fprintf(b, "  costs: %s, %s, %s, %.1f GPU hours", counted(len(c.Servers), "server"), counted(c.GPUs, "GPU"), counted(len(c.Jobs), "job"), c.GPUHours)
		if c.Unknown > 0 {
			fmt.Fprintf(b, " and those of %s of which nobody tells", counted(c.Unknown, "job"))
		}
		var jobs []string
		for _, j := range c.Jobs {
			jobs = append(jobs, j.ID+joined(" of ", j.Owner))
		}
		if len(jobs) > 0 {
			fmt.Fprintf(b, ": %s", list(jobs))
		}
		b.WriteString("\n")
	}
	if len(p.Then) > 0 {
		fmt.Fprintf(b, "  then: %s\n", strings.Join(p.Then, ", "))
	}
}

// joined is a text after what joins it, or nothing.
func joined(by, text string) string {
	if text == "" {
		return ""
	}
	return by + text
}

// list names the first of many.
func list(names []string) string {
	const most = 10
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}
