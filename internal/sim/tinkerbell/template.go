package tinkerbell

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	text "text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/distribution/reference"
	"go.yaml.in/yaml/v3"
)

// document is what a template is rendered to (tink v0.12.2, internal/deprecated/workflow, types.go).
type document struct {
	Version       string `yaml:"version"`
	Name          string `yaml:"name"`
	GlobalTimeout int64  `yaml:"global_timeout"`
	Tasks         []struct {
		Name        string            `yaml:"name"`
		WorkerAddr  string            `yaml:"worker"`
		Volumes     []string          `yaml:"volumes"`
		Environment map[string]string `yaml:"environment"`
		Actions     []struct {
			Name        string            `yaml:"name"`
			Image       string            `yaml:"image"`
			Timeout     int64             `yaml:"timeout"`
			Command     []string          `yaml:"command"`
			Volumes     []string          `yaml:"volumes"`
			Environment map[string]string `yaml:"environment"`
			Pid         string            `yaml:"pid"`
		} `yaml:"actions"`
	} `yaml:"tasks"`
}

// formatPartition is how Linux calls a partition of a disk.
func formatPartition(dev string, n int) string {
	if strings.HasPrefix(dev, "/dev/nvme") {
		return fmt.Sprintf("%sp%d", dev, n)
	}
	for _, kind := range []string{"sd", "vd", "xvd", "hd"} {
		if strings.HasPrefix(dev, "/dev/"+kind) {
			return fmt.Sprintf("%s%d", dev, n)
		}
	}
	return dev
}

// seen is what a template sees of hardware, by the names of tink.
func (h *hardware) seen() map[string]any {
	disks := []string{}
	for _, d := range h.Spec.Disks {
		disks = append(disks, d.Device)
	}
	m := h.Spec.Metadata
	if m == nil {
		m = &metadata{}
	}
	word := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return map[string]any{
		"Disks": disks, "Interfaces": h.Spec.Interfaces, "Metadata": *m, "UserData": word(h.Spec.UserData), "VendorData": word(h.Spec.VendorData),
	}
}

// render is the status that a workflow with a template begins with.
func render(name, data string, devices map[string]string, h *hardware) (*workflowStatus, error) {
	funcs := sprig.TxtFuncMap()
	maps.Copy(funcs, text.FuncMap{"formatPartition": formatPartition})
	t, err := text.New("workflow-template").Option("missingkey=error").Funcs(funcs).Parse(data)
	if err != nil {
		return nil, fmt.Errorf("failed to parse template with ID %s: %w", name, err)
	}
	values := map[string]any{}
	for k, v := range devices {
		values[k] = v
	}
	values["Hardware"] = h.seen()
	var out bytes.Buffer
	if err := t.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("failed to parse template with ID %s: %w", name, err)
	}
	var d document
	if err := yaml.Unmarshal(out.Bytes(), &d); err != nil {
		return nil, fmt.Errorf("parsing yaml data: %w", err)
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("validating workflow template: %w", err)
	}
	st := &workflowStatus{GlobalTimeout: d.GlobalTimeout}
	for _, t := range d.Tasks {
		if t.WorkerAddr == "" {
			return nil, errors.New("failed to render template, empty hardware address")
		}
		is := task{Name: t.Name, WorkerAddr: t.WorkerAddr, Volumes: t.Volumes, Environment: t.Environment, Actions: []action{}}
		for _, a := range t.Actions {
			is.Actions = append(is.Actions, action{
				Name: a.Name, Image: a.Image, Timeout: a.Timeout, Command: a.Command, Volumes: a.Volumes, Environment: a.Environment, Pid: a.Pid,
				Status: pending,
			})
		}
		st.Tasks = append(st.Tasks, is)
	}
	return st, nil
}

// check holds a document against what tink v0.12.2 asks of it (template_validator.go).
func (d *document) check() error {
	named := func(name string) error {
		if name == "" || len(name) >= 200 {
			return fmt.Errorf("name cannot be empty or have more than 200 characters: %s", name)
		}
		return nil
	}
	if err := named(d.Name); err != nil {
		return err
	}
	if len(d.Tasks) == 0 {
		return errors.New("template must have at least one task defined")
	}
	tasks := map[string]bool{}
	for _, t := range d.Tasks {
		if err := named(t.Name); err != nil {
			return err
		}
		if tasks[t.Name] {
			return fmt.Errorf("two tasks in a template cannot have same name (%s)", t.Name)
		}
		tasks[t.Name] = true
		actions := map[string]bool{}
		for _, a := range t.Actions {
			if err := named(a.Name); err != nil {
				return err
			}
			if _, err := reference.ParseNormalizedNamed(a.Image); err != nil {
				return fmt.Errorf("invalid action image (%s): %w", a.Image, err)
			}
			if actions[a.Name] {
				return fmt.Errorf("two actions in a task cannot have same name: %s", a.Name)
			}
			actions[a.Name] = true
		}
	}
	return nil
}
