package tinkerbell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"auspex/control"
	"auspex/control/policy"
	"auspex/internal/provision"
	"auspex/schemas"
)

// order is what a step comes to: a template, filled in for a server.
type order struct {
	record   schemas.HardwareRecord
	template string
	version  int64
	text     string // with its secrets where they were asked for
	steps    []schemas.TemplateStep
	secrets  []string // values that nobody may read in what is said
}

// name of the Template of Kubernetes.
func (o *order) name() string {
	return fmt.Sprintf("auspex-%s-v%d-%s", label(o.template), o.version, digest(o.text)[:12])
}

// pinned is how a template and its version are said.
func (o *order) pinned() string { return fmt.Sprintf("%s@%d", o.template, o.version) }

// cannot marks an error as final.
func cannot(err error) error {
	if err == nil || errors.Is(err, control.ErrCannot) {
		return err
	}
	return fmt.Errorf("%w: %w", control.ErrCannot, err)
}

// order makes one of a step. With secrets it is what is installed, without what people may see.
func (i *installer) order(ctx context.Context, s control.Step, secrets bool) (o order, err error) {
	if i.installs == nil {
		return o, fmt.Errorf("%w: no store of templates is here", control.ErrCannot)
	}
	if o.record, err = i.installs.Hardware(ctx, s.Server); err != nil {
		return o, err
	}
	name, version := o.record.Overrides.Template, o.record.Overrides.TemplateVersion
	if s.Kind != kindReinstall {
		name, version = s.With[policy.Template], 0
		if v := s.With[policy.Version]; v != "" {
			if version, err = strconv.ParseInt(v, 10, 64); err != nil {
				return o, fmt.Errorf("%w: version %q is no number", control.ErrCannot, v)
			}
		}
	}
	if name == "" {
		return o, fmt.Errorf("%w: no template is pinned to %s (template and template_version of its hardware)", control.ErrCannot, s.Server)
	}
	lacks := slices.DeleteFunc(slices.Clone(o.record.Lacks), func(fact string) bool { return strings.HasPrefix(fact, "bmc_") })
	if len(lacks) > 0 {
		return o, fmt.Errorf("%w: the hardware record of %s lacks %s", control.ErrCannot, s.Server, strings.Join(lacks, ", "))
	}
	t, err := i.installs.Template(ctx, name, version)
	if err != nil {
		return o, err
	}
	if t.Status == schemas.TemplateRetired && s.Kind != kindReinstall {
		return o, fmt.Errorf("%w: the template %s is retired", control.ErrCannot, t.Name)
	}
	o.template, o.version = t.Name, t.Version
	given, err := provision.Values(&t.TemplateBody, policy.Parameters(s.With))
	if err != nil {
		return o, cannot(err)
	}
	if s.Kind == kindWipe {
		if err := i.tells(&t); err != nil {
			return o, err
		}
		given[wipeToken] = "secret:" + wipeSecret
	}
	var resolve provision.Secrets
	if secrets {
		resolve = func(ctx context.Context, name string) (string, error) {
			if s.Kind == kindWipe && name == wipeSecret {
				value, err := i.wipes.Open(ctx, s.ID, o.record.ID, workflowName(s))
				o.secrets = append(o.secrets, value)
				return value, err
			}
			if i.secrets == nil {
				return "", errors.New("there are no secrets here")
			}
			_, value, err := i.secrets.Secret(ctx, name)
			o.secrets = append(o.secrets, value)
			return value, err
		}
	}
	if o.text, o.steps, _, err = provision.Render(ctx, &t.TemplateBody, given, &o.record, resolve); err != nil {
		return o, cannot(err)
	}
	return o, o.onlyIts()
}

// onlyIts is the error of a text that has another machine do something.
func (o *order) onlyIts() error {
	var doc struct {
		Tasks []struct {
			Name   string `yaml:"name"`
			Worker string `yaml:"worker"`
		} `yaml:"tasks"`
	}
	if err := yaml.Unmarshal([]byte(o.text), &doc); err != nil {
		return fmt.Errorf("%w: the rendered template is no YAML", control.ErrCannot) // which quotes it otherwise
	}
	for _, t := range doc.Tasks {
		if !strings.EqualFold(t.Worker, bootMAC(&o.record)) {
			return fmt.Errorf("%w: the task %s of %s has the worker %s, and %s starts by %s", control.ErrCannot, t.Name, o.pinned(), hidden(t.Worker, o.secrets), o.record.Name, bootMAC(&o.record))
		}
	}
	return nil
}

// hidden replaces secrets in what is said.
func hidden(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, provision.Masked)
		}
	}
	return text
}

// discreet is an error that quotes no secret; what can be done about it stays known.
func discreet(err error, secrets []string) error {
	if err == nil || hidden(err.Error(), secrets) == err.Error() {
		return err
	}
	said := errors.New(hidden(err.Error(), secrets))
	return cmp.Or(wrapped(err, said, control.ErrRejected), wrapped(err, said, control.ErrCannot), said)
}

func wrapped(err, said, kind error) error {
	if errors.Is(err, kind) {
		return fmt.Errorf("%w: %w", kind, said)
	}
	return nil
}

// words is what Tinkerbell says of a step, without the secrets of its template.
func (i *installer) words(ctx context.Context, s control.Step, text string) string {
	if text == "" {
		return ""
	}
	o, err := i.order(ctx, s, true)
	if err != nil {
		return "(withheld: its secrets cannot be looked up)"
	}
	return short(hidden(text, o.secrets))
}

// short is what others say, in one line.
func short(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
