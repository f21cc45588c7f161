package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"go.yaml.in/yaml/v3"

	"auspex/internal/nearest"
	"auspex/schemas"
)

// workflow is what a template is rendered to, as tink v0.12.2 decodes it
// (internal/deprecated/workflow, types.go).
type workflow struct {
	Version       string `yaml:"version"`
	Name          string `yaml:"name"`
	ID            string `yaml:"id"`
	GlobalTimeout int    `yaml:"global_timeout"`
	Tasks         []task `yaml:"tasks"`
}

type task struct {
	Name        string            `yaml:"name"`
	WorkerAddr  string            `yaml:"worker"`
	Actions     []action          `yaml:"actions"`
	Volumes     []string          `yaml:"volumes,omitempty"`
	Environment map[string]string `yaml:"environment,omitempty"`
}

type action struct {
	Name        string            `yaml:"name"`
	Image       string            `yaml:"image"`
	Timeout     int64             `yaml:"timeout"`
	Command     []string          `yaml:"command,omitempty"`
	OnTimeout   []string          `yaml:"on-timeout,omitempty"`
	OnFailure   []string          `yaml:"on-failure,omitempty"`
	Volumes     []string          `yaml:"volumes,omitempty"`
	Environment map[string]string `yaml:"environment,omitempty"`
	Pid         string            `yaml:"pid,omitempty"`
}

// The fields of each, by which a misspelt one is found: tink reads over what it does not know.
var (
	ofWorkflow = []string{"version", "name", "id", "global_timeout", "tasks"}
	ofTask     = []string{"name", "worker", "actions", "volumes", "environment"}
	ofAction   = []string{"name", "image", "timeout", "command", "on-timeout", "on-failure", "volumes", "environment", "pid"}
)

// maxName is the longest name that tink takes.
const maxName = 199

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\n\s*)?line (\d+): (.*)$`)

// inspector looks at a rendered workflow.
type inspector struct {
	track  *track
	faults Faults
}

// say notes a fault in a line of the rendered text.
func (i *inspector) say(rendered int, detail string, args ...any) {
	i.faults = append(i.faults, Fault{Field: "text", Line: i.track.line(rendered), Detail: fmt.Sprintf(detail, args...)})
}

// at is a node of YAML, through an alias.
func at(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// fields are those of a mapping. What it should not have is a fault.
func (i *inspector) fields(what string, n *yaml.Node, known []string) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	if n = at(n); n == nil || n.Kind != yaml.MappingNode {
		return out
	}
	for k := 0; k+1 < len(n.Content); k += 2 {
		key := n.Content[k]
		if !slices.Contains(known, key.Value) && key.Value != "<<" {
			hint := ""
			if like := nearest.Words(key.Value, slices.Values(known), 1); len(like) > 0 {
				hint = "; there is " + like[0]
			}
			i.say(key.Line, "%s has no field %s, and Tinkerbell would read over it%s", what, key.Value, hint)
		}
		out[key.Value] = n.Content[k+1]
	}
	return out
}

// items are those of a sequence.
func items(n *yaml.Node) []*yaml.Node {
	if n = at(n); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// lineOf is the line of a field, or that of what it is to be in.
func lineOf(fields map[string]*yaml.Node, name string, whole *yaml.Node) int {
	if n := fields[name]; n != nil {
		return n.Line
	}
	return whole.Line
}

// inspect holds a rendered text against what Tinkerbell takes, and against what an installation
// needs beside that.
func inspect(t *track) (w workflow, faults Faults) {
	i := inspector{track: t}
	text := t.String()
	for k, l := range strings.Split(text, "\n") {
		if strings.Contains(l, "<no value>") {
			i.say(k+1, "a parameter is printed that has no value; give it a default, or ask for it with if")
		}
		if strings.Contains(l, "{{") {
			i.say(k+1, "the rendered text has {{, which Tinkerbell would take for a placeholder once more")
		}
	}
	var doc yaml.Node
	err := yaml.Unmarshal([]byte(text), &doc)
	if err == nil && len(doc.Content) == 0 {
		return w, Faults{{Field: "text", Line: 1, Detail: "is rendered to nothing"}}
	}
	if err == nil {
		err = doc.Decode(&w)
	}
	if err != nil {
		for l := range strings.SplitSeq(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n"), "\n") {
			if m := yamlLine.FindStringSubmatch(strings.TrimSpace(l)); m != nil {
				n, _ := strconv.Atoi(m[1])
				if strings.HasPrefix(m[2], "did not find") { // the parser counts from 0, and tells where it began
					n, m[2] = n+1, m[2]+", in what begins here"
				}
				i.say(n, "is no YAML of a workflow: %s", m[2])
			} else {
				i.say(1, "is no YAML of a workflow: %s", strings.TrimPrefix(l, "yaml: "))
			}
		}
		return w, i.faults
	}
	root := at(doc.Content[0])
	top := i.fields("the workflow", root, ofWorkflow)
	if w.Version != "0.1" {
		i.say(lineOf(top, "version", root), "version is %q, and Tinkerbell has 0.1 alone", w.Version)
	}
	i.name("the workflow", w.Name, lineOf(top, "name", root))
	if w.GlobalTimeout <= 0 {
		i.say(lineOf(top, "global_timeout", root), "global_timeout is no number of seconds above 0: without it a workflow ends at once")
	}
	if len(w.Tasks) == 0 {
		i.say(lineOf(top, "tasks", root), "there is no task")
	}
	tasks, actions := map[string]bool{}, map[string]bool{}
	for k, n := range items(top["tasks"]) {
		if k < len(w.Tasks) {
			i.task(&w.Tasks[k], at(n), tasks, actions)
		}
	}
	slices.SortStableFunc(i.faults, func(a, b Fault) int { return a.Line - b.Line })
	return w, slices.Compact(i.faults)
}

func (i *inspector) name(what, name string, line int) {
	if name == "" || len(name) > maxName {
		i.say(line, "%s has no name of 1 to %d characters", what, maxName)
	}
}

func (i *inspector) task(t *task, n *yaml.Node, tasks, actions map[string]bool) {
	what := "the task " + t.Name
	f := i.fields(what, n, ofTask)
	i.name("the task", t.Name, lineOf(f, "name", n))
	if tasks[t.Name] {
		i.say(lineOf(f, "name", n), "there are two tasks named %s", t.Name)
	}
	tasks[t.Name] = true
	if t.WorkerAddr == "" {
		i.say(lineOf(f, "worker", n), "%s has no worker: the MAC address that the hardware boots by is not known, or not asked for", what)
	}
	i.volumes(t.Volumes, f["volumes"])
	if len(t.Actions) == 0 {
		i.say(lineOf(f, "actions", n), "%s has no actions", what)
	}
	for k, n := range items(f["actions"]) {
		if k < len(t.Actions) {
			i.action(&t.Actions[k], at(n), actions)
		}
	}
}

func (i *inspector) action(a *action, n *yaml.Node, actions map[string]bool) {
	what := "the action " + a.Name
	f := i.fields(what, n, ofAction)
	i.name("the action", a.Name, lineOf(f, "name", n))
	if actions[a.Name] {
		i.say(lineOf(f, "name", n), "there are two actions named %s", a.Name)
	}
	actions[a.Name] = true
	if a.Timeout <= 0 {
		i.say(lineOf(f, "timeout", n), "%s has no timeout of seconds above 0", what)
	}
	i.volumes(a.Volumes, f["volumes"])
	if given := at(f["environment"]); given != nil && given.Kind == yaml.MappingNode {
		for k := 0; k+1 < len(given.Content); k += 2 {
			i.payload(given.Content[k].Value+" of "+what, given.Content[k+1])
		}
	}
	image, err := reference.ParseNormalizedNamed(a.Image) // as tink does
	switch {
	case a.Image == "":
		i.say(lineOf(f, "image", n), "%s has no image", what)
	case err != nil:
		i.say(lineOf(f, "image", n), "%s: %q is no name of an image: %v", what, a.Image, err)
	case reference.IsNameOnly(image):
		i.say(lineOf(f, "image", n), "%s: the image %s has neither a tag nor a digest, so that it would be another one tomorrow", what, a.Image)
	}
}

func (i *inspector) volumes(volumes []string, n *yaml.Node) {
	nodes := items(n)
	for k, v := range volumes {
		if parts := strings.Split(v, ":"); (len(parts) != 2 && len(parts) != 3 || slices.Contains(parts, "")) && k < len(nodes) {
			i.say(nodes[k].Line, "the volume %q is not FROM:TO", v)
		}
	}
}

// rendered runs a template and inspects what comes of it.
func rendered(ctx context.Context, text string, data map[string]any) (*track, workflow, Faults) {
	t, faults := run(ctx, text, data)
	if len(faults) > 0 {
		return nil, workflow{}, faults
	}
	w, faults := inspect(t)
	return t, w, faults
}

// data is what a template is rendered with.
func data(values map[string]any, h hardwareData) map[string]any {
	out := maps.Clone(values)
	out[hardwareKey] = h
	out[deviceKey] = h.boot()
	return out
}

// Check is the error, [Faults], of a template that cannot be used: it is rendered with defaults and
// examples, once with all that can be given and once with no more than has to be, for each of its
// architectures.
func Check(ctx context.Context, b *schemas.TemplateBody) error {
	p, faults := readSchema(b)
	if len(b.Architectures) == 0 {
		faults = append(faults, Fault{Field: "architectures", Detail: "names none"})
	}
	if len(faults) > 0 {
		_, more := read(b.Text, nil)
		return append(faults, more...).err()
	}
	if _, faults = read(b.Text, p); len(faults) > 0 {
		return faults.err()
	}
	all, least := map[string]any{}, map[string]any{}
	for name := range p.properties {
		if v := p.sample(name); v != nil {
			all[name] = v
		}
	}
	for _, name := range p.required {
		least[name] = p.sample(name)
	}
	for _, arch := range b.Architectures {
		for _, given := range []map[string]any{all, least} {
			if err := ctx.Err(); err != nil { // what follows is work of the CPU alone
				return err
			}
			if _, _, faults = rendered(ctx, b.Text, data(p.masked(p.fill(given)), sampleHardware(arch))); len(faults) > 0 {
				return faults.err()
			}
		}
	}
	return nil
}

// masked has secrets replaced by what people may see.
func (p *parameters) masked(values map[string]any) map[string]any {
	out := maps.Clone(values)
	for name := range p.properties {
		if p.secret[name] && out[name] != nil {
			out[name] = Masked
		}
	}
	return out
}

// Secrets resolves the name of a secret.
type Secrets func(ctx context.Context, name string) (string, error)

// Render fills a template in for hardware, with what a caller gives. Secrets are masked where
// nobody resolves them: so is what people see. The error of what cannot be rendered is [Faults].
func Render(
	ctx context.Context, b *schemas.TemplateBody, given map[string]any, h *schemas.HardwareRecord, secrets Secrets,
) (text string, steps []schemas.TemplateStep, masked []string, err error) {
	p, faults := readSchema(b)
	if len(faults) > 0 {
		return "", nil, nil, faults.err()
	}
	given, _ = plain(given).(map[string]any)
	if faults = p.check(given, false); len(faults) > 0 {
		return "", nil, nil, faults.err()
	}
	if arch := h.Fact(schemas.FactArchitecture); arch != "" && len(b.Architectures) > 0 && !slices.Contains(b.Architectures, arch) {
		return "", nil, nil, Faults{{Field: "server", Detail: fmt.Sprintf("is %s, and the template is for %s", arch, strings.Join(b.Architectures, ", "))}}
	}
	values, hw := p.fill(given), hardwareOf(h)
	t, w, faults := rendered(ctx, b.Text, data(p.masked(values), hw))
	if len(faults) > 0 {
		return "", nil, nil, faults.err()
	}
	masked = []string{}
	for _, name := range slices.Sorted(maps.Keys(p.secret)) {
		if ref, _ := values[name].(string); p.secret[name] && ref != "" {
			masked = append(masked, name)
			if secrets == nil {
				continue
			}
			if values[name], err = secrets(ctx, strings.TrimPrefix(ref, secretForm)); err != nil {
				return "", nil, nil, fmt.Errorf("resolve the secret of parameter %s: %w", name, err)
			}
		}
	}
	if secrets != nil && len(masked) > 0 {
		if t, w, faults = rendered(ctx, b.Text, data(values, hw)); len(faults) > 0 { // which may quote them
			return "", nil, nil, Faults{{Field: "text", Line: faults[0].Line, Detail: "with its secrets filled in it is no valid workflow"}}
		}
	}
	steps = []schemas.TemplateStep{}
	for k := range w.Tasks {
		for _, a := range w.Tasks[k].Actions {
			steps = append(steps, schemas.TemplateStep{Task: w.Tasks[k].Name, Name: a.Name, Image: a.Image, Timeout: a.Timeout})
		}
	}
	return t.String(), steps, masked, nil
}

// Values are parameters that are given as texts, as a policy or a request has them: what the schema
// of a template wants as another type than a string is read as JSON. The error is [Faults].
func Values(b *schemas.TemplateBody, texts map[string]string) (map[string]any, error) {
	p, faults := readSchema(b)
	if len(faults) > 0 {
		return nil, faults.err()
	}
	out := make(map[string]any, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		out[name] = texts[name]
		kind, _ := p.properties[name]["type"].(string)
		if kind == "" || kind == "string" {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(texts[name]), &v); err != nil {
			faults = append(faults, Fault{Field: "parameters." + name, Detail: "is no JSON of type " + kind})
			continue
		}
		out[name] = v
	}
	return out, faults.err()
}
