package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"auspex/allocator/fit/messages"
	"auspex/client"
	"auspex/schemas"
)

const pollEvery = time.Second

// allocate asks for servers or GPUs in the words that people use.
func (o *options) allocate() *cobra.Command {
	var a client.NewAllocation
	var w schemas.Wish
	var rack, rail, nvlink, dry, wait bool
	var lasts, in string
	var risk float64
	var parameters []string
	c := &cobra.Command{
		Use:   "allocate [SERVER|GPU ...]",
		Short: "Allocate servers or GPUs: those that are named, or what fits",
		Example: `  auspex allocate --gpus 16 --same-rack --for 3d --purpose "fine-tuning"
  auspex allocate --servers 2 --model 'H100*' --max-risk 0.1 --for 7d --wait
  auspex allocate gpu-r01-03 gpu-r01-04 --dry-run
  auspex allocate gpu-r01-05/gpu0 gpu-r01-05/gpu1 --for 4h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now().UTC()
			if in != "" {
				d, err := duration(in)
				if err != nil {
					return fmt.Errorf("--in: %w", err)
				}
				start := now.Add(d)
				a.StartTime, now = start, start
			}
			if lasts != "" {
				d, err := duration(lasts)
				if err != nil {
					return fmt.Errorf("--for: %w", err)
				}
				a.EndTime = now.Add(d)
			}
			for _, name := range args { // a GPU is a part of a server, and its name says so
				if strings.Contains(name, "/") {
					a.GPUIDs = append(a.GPUIDs, name)
				} else {
					a.ServerIDs = append(a.ServerIDs, name)
				}
			}
			if w.Servers > 0 || w.GPUs > 0 {
				for name, on := range map[string]bool{"rack": rack, "rail": rail, "nvlink": nvlink} {
					if on && w.Together != "" {
						return errors.New("choose one of --same-rack, --same-rail and --same-nvlink")
					} else if on {
						w.Together = name
					}
				}
				if cmd.Flags().Changed("max-risk") {
					w.MaxRisk = &risk
				}
				a.Wish = &w
			}
			var err error
			if a.Parameters, err = given(parameters); err != nil {
				return err
			}
			api, err := o.connect()
			if err != nil {
				return err
			}
			return o.ask(cmd.Context(), api, &a, dry, wait, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.IntVar(&w.Servers, "servers", 0, "whole servers")
	f.IntVar(&w.GPUs, "gpus", 0, "GPUs")
	f.IntVar(&w.GPUsPerServer, "gpus-per-server", 0, "exactly so many of each server")
	f.StringVar(&w.Model, "model", "", "model of the GPUs; * stands for anything")
	f.StringVar(&w.ServerModel, "server-model", "", "model of the servers")
	f.Float64Var(&w.MinMemoryGB, "min-memory", 0, "memory of each GPU, in `GB`")
	f.StringVar(&w.Pool, "pool", "", "of this pool")
	f.StringToStringVar(&w.Labels, "label", nil, "servers with this label, as `key=value`")
	f.BoolVar(&rack, "same-rack", false, "all in one rack")
	f.BoolVar(&rail, "same-rail", false, "all on the same leaf switches")
	f.BoolVar(&nvlink, "same-nvlink", false, "all in one NVLink domain")
	f.StringVar(&w.Spread, "spread", "", "spread over feeds or racks")
	f.StringVar(&w.MinHealth, "min-health", "", "ok or warning")
	f.Float64Var(&risk, "max-risk", 0, "probability, 0 to 1, that a part of a server fails in that time")
	f.StringVar(&lasts, "for", "", "how `long`, such as 4h or 3d; without it, until it is released")
	f.StringVar(&in, "in", "", "how `long` from now it begins, such as 2h")
	f.StringVar(&a.Template, "template", "", "install the servers with this template")
	f.Int64Var(&a.TemplateVersion, "template-version", 0, "of the template; without it, the latest")
	f.StringArrayVar(&parameters, "parameter", nil, "of the template, as `name=value`; what is no text is JSON")
	f.StringVar(&a.Purpose, "purpose", "", "what for")
	f.StringVar(&a.UserID, "user", "", "for another user")
	f.StringVar(&a.Team, "team", "", "of this team")
	f.BoolVar(&dry, "dry-run", false, "only say what would be given, and why")
	f.BoolVar(&wait, "wait", false, "wait until it is ready")
	o.offers(c)
	for flag, words := range map[string][]string{"spread": {"feeds", "racks"}, "min-health": {"ok", "warning"}} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if server, _, part := strings.Cut(typed, "/"); part {
			return o.offer("gpus", url.Values{"server": {server}}, "id")(cmd, args, typed)
		}
		return o.offer("servers", url.Values{"status": {schemas.ServerReady}}, "id")(cmd, args, typed)
	}
	return c
}

// duration is one of Go's, or days.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n float64
		if _, err := fmt.Sscanf(days, "%g", &n); err != nil || n <= 0 {
			return 0, fmt.Errorf("%q is no duration: want 90m, 4h or 3d", text)
		}
		return time.Duration(n * 24 * float64(time.Hour)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no duration: want 90m, 4h or 3d", text)
	}
	return d, nil
}

func (o *options) ask(ctx context.Context, api *client.Client, a *client.NewAllocation, dry, wait bool, out, notes io.Writer) error {
	choice, made, err := api.CreateAllocation(ctx, *a, client.CreateAllocationParams{DryRun: &dry})
	if p := (*client.Problem)(nil); errors.As(err, &p) && p.Code == "no_fit" && p.Choice != nil {
		why(notes, p.Choice)
	}
	if err != nil {
		return explain(err)
	}
	if choice != nil {
		if o.output != "table" {
			return o.printed(out, notes, choice)
		}
		return chosen(out, choice)
	}
	if o.output != "table" {
		err = o.printed(out, notes, made)
	} else {
		err = summary(out, &made.Allocation)
	}
	if err != nil {
		return err
	}
	if !wait {
		return nil
	}
	return follow(ctx, api, made.Allocation.ID, notes)
}

// printed prints a typed answer in the form that was asked for.
func (o *options) printed(out, notes io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.print(out, notes, nil, raw)
}

// summary is an allocation in a few lines.
func summary(out io.Writer, a *schemas.Allocation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "allocation\t%s\nstatus\t%s\nservers\t%s\ngpus\t%d\n", a.ID, a.Status, strings.Join(a.Servers, ", "), len(a.GPUIDs))
	if !a.EndTime.IsZero() {
		_, _ = fmt.Fprintf(w, "until\t%s\n", a.EndTime.Format(time.RFC3339))
	}
	return w.Flush()
}

// chosen is what would be given, and why.
func chosen(out io.Writer, c *schemas.Choice) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, list := range []struct {
		name string
		of   []schemas.Pick
	}{{"given", c.Servers}, {"next best", c.RunnersUp}} {
		for _, p := range list.of {
			var reasons []string
			for _, r := range p.Reasons {
				reasons = append(reasons, messages.Text(r))
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%d GPUs\t%s\n", list.name, p.Server, len(p.GPUs), strings.Join(reasons, "; "))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	why(out, c)
	return nil
}

// why tells why others were not chosen, and what would fit.
func why(out io.Writer, c *schemas.Choice) {
	for _, l := range c.Lost {
		_, _ = fmt.Fprintf(out, "%d not chosen: %s (%s)\n", l.Count, messages.Text(l.Reason), strings.Join(l.Examples, ", "))
	}
	for _, s := range c.Nearest {
		_, _ = fmt.Fprintln(out, messages.Text(s))
	}
}

// follow tells the steps of an allocation until it is active or has ended.
func follow(ctx context.Context, api *client.Client, id string, notes io.Writer) error {
	told := make(map[string]string)
	for {
		s, err := api.GetAllocationStatus(ctx, id)
		if err != nil {
			return explain(err)
		}
		for _, w := range s.Workflows {
			for _, st := range w.Steps {
				line := fmt.Sprintf("%s  %s %s: %s", w.Server, st.Name, st.Status, st.Message)
				if st.Status != schemas.StepPending && told[w.ID+st.Name] != line {
					told[w.ID+st.Name] = line
					_, _ = fmt.Fprintln(notes, line)
				}
			}
		}
		if s.StatusReason != "" && told["reason"] != s.StatusReason {
			told["reason"] = s.StatusReason
			_, _ = fmt.Fprintln(notes, s.StatusReason)
		}
		switch s.Status {
		case schemas.AllocationActive:
			_, _ = fmt.Fprintln(notes, "active")
			return nil
		case schemas.AllocationPending:
		default:
			return fmt.Errorf("the allocation is %s: %s", s.Status, s.StatusReason)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// release ends an allocation.
func (o *options) release() *cobra.Command {
	var report string
	c := &cobra.Command{
		Use: "release ALLOCATION", Short: "End an allocation; what it held is cleaned and given to others", Args: cobra.ExactArgs(1),
		Example: `  auspex release 0198c9f2-4f6e-7cc3-9a57-2c1e55a0c001 --report "gpu3 was slow"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := o.connect()
			if err != nil {
				return err
			}
			a, err := api.StopAllocation(cmd.Context(), args[0], &client.StoppedAllocation{Report: report})
			if err != nil {
				return explain(err)
			}
			if o.output != "table" {
				return o.printed(cmd.OutOrStdout(), cmd.ErrOrStderr(), a)
			}
			return summary(cmd.OutOrStdout(), &a)
		},
	}
	c.Flags().StringVar(&report, "report", "", "what was wrong with the hardware")
	live := o.offer("allocations", url.Values{"live": {"true"}}, "id")
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return live(cmd, args, typed)
	}
	return c
}

// given are the parameters of a template, as they were typed: what reads as JSON of another type than a text is that.
func given(typed []string) (map[string]any, error) {
	var out map[string]any
	for _, one := range typed {
		name, text, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--parameter: %q is no name=value", one)
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			v = text
		}
		if out == nil {
			out = map[string]any{}
		}
		out[name] = v
	}
	return out, nil
}
