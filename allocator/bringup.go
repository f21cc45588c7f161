package allocator

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"auspex/allocator/steps"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// BringUp says what is done to a server that was found, before somebody is given it.
type BringUp struct {
	// Steps are those of the workflow. firmware stands for an update of each component that the baseline of the server's model has;
	// install is left out where no template is asked for or pinned.
	Steps []string `yaml:"steps"`
	// Firmware is the baseline: which version each component of a model is to have.
	Firmware []Firmware `yaml:"firmware"`
}

// Firmware is the version that a component of all servers of a model is to have, and the image that has it.
type Firmware struct {
	Model     string `yaml:"model"`     // as the inventory has it
	Component string `yaml:"component"` // its id or name in the firmware inventory of the board controller, or a part of them
	Version   string `yaml:"version"`   // as the controller tells it
	Image     string `yaml:"image"`     // URL, at one of control.bmc.images
	SHA256    string `yaml:"sha256"`    // of the image, in hex
}

// firmware is the step of a bring-up that becomes one update for each component.
const firmware = "firmware"

func (b *BringUp) validate() error {
	seen := map[[2]string]bool{}
	for i, f := range b.Firmware {
		for key, v := range map[string]string{"model": f.Model, "component": f.Component, "version": f.Version, "image": f.Image, "sha256": f.SHA256} {
			if v == "" {
				return fmt.Errorf("bring_up.firmware[%d].%s is missing", i, key)
			}
		}
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != 32 {
			return fmt.Errorf("bring_up.firmware[%d].sha256 is %q; want 64 hexadecimal digits", i, f.SHA256)
		}
		about := [2]string{f.Model, f.Component}
		if seen[about] {
			return fmt.Errorf("bring_up.firmware[%d]: %s of %s has a version already", i, f.Component, f.Model)
		}
		seen[about] = true
	}
	if len(b.Firmware) > 0 && !slices.Contains(b.Steps, firmware) {
		return errors.New("bring_up.firmware is set, and bring_up.steps has no step firmware")
	}
	if len(b.Steps) == 0 {
		return errors.New("bring_up.steps is empty: a server would be ready that nobody has looked at")
	}
	return nil
}

// updates are the steps that bring a model to its baseline. Each is done as it is where the controller tells that version.
func (b *BringUp) updates(model string) (out []schemas.WorkflowStep) {
	for _, f := range b.Firmware {
		if f.Model == model {
			out = append(out, schemas.WorkflowStep{Name: steps.Update, With: map[string]string{
				"component": f.Component, "version": f.Version, "image": f.Image, "sha256": f.SHA256,
			}})
		}
	}
	if out == nil {
		out = []schemas.WorkflowStep{{Name: steps.NoBaseline, With: map[string]string{"model": model}}}
	}
	return out
}

// BringUp makes the workflow that takes a server, by its id, from where it was found to ready. It is installed with what is asked
// for, or with what is pinned to it; without either it keeps what it has.
func (s *Service) BringUp(ctx context.Context, by, server string, in schemas.Install) (schemas.Workflow, error) {
	all, err := s.BringUpSteps(ctx, server, in)
	if err != nil {
		return schemas.Workflow{}, err
	}
	return s.d.Workflows.Create(ctx, by, schemas.Workflow{ServerID: server, Type: schemas.WorkflowBringUp, Exclusive: true, Steps: all})
}

// BringUpSteps are the steps of that workflow; nothing is begun.
func (s *Service) BringUpSteps(ctx context.Context, server string, in schemas.Install) (all []schemas.WorkflowStep, err error) {
	found, _, err := s.d.Estate.Some(ctx, []string{server})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("server %s: %w", server, entity.ErrNone)
	}
	if err != nil {
		return nil, err
	}
	if in.Template == "" && s.d.Pinned != nil {
		if in.Template, in.TemplateVersion, err = s.d.Pinned(ctx, server); err != nil {
			return nil, err
		}
	} else if in.Template != "" && (s.d.Pinned == nil || !slices.Contains(s.cfg.BringUp.Steps, steps.Install)) {
		return nil, schemas.ErrNoInstall
	}
	for _, st := range stepsOf(s.cfg.BringUp.Steps) {
		switch st.Name {
		case firmware:
			all = append(all, s.cfg.BringUp.updates(found[0].Model)...)
			continue
		case steps.Install:
			if in.Template == "" {
				continue
			}
			if st.With, err = steps.InstallWith(&in); err != nil {
				return nil, err
			}
		case validate:
			st.With = map[string]string{"optional": "true"} // no agent tests a server that has none
		}
		all = append(all, st)
	}
	return all, nil
}

// validate is the step in which the node agent tests the server.
const validate = "validate"
