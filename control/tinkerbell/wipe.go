package tinkerbell

import (
	"context"
	"fmt"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/wipe"
	"auspex/schemas"
)

// wipeToken is the parameter of a template that wipes: the token with which its workflow tells what it found of the drives. It is
// filled in here alone, as the secret of a name that no credential of the configuration can have.
const (
	wipeToken  = "wipe_token"
	wipeSecret = "auspex.wipe.token"
)

// tells is the error of a template whose workflow could tell nobody what it found.
func (i *installer) tells(t *schemas.Template) error {
	if i.wipes == nil {
		return fmt.Errorf("%w: nobody here keeps what is found of drives", control.ErrCannot)
	}
	properties, _ := t.Parameters["properties"].(map[string]any)
	if properties[wipeToken] == nil {
		return fmt.Errorf("%w: the template %s has no parameter %s, with which its workflow tells what it found of the drives", control.ErrCannot, t.Name, wipeToken)
	}
	return nil
}

// proven is what a wipe has come to, whose workflow has ended: that this succeeded is no proof, and what it found counts where it
// failed too.
func (i *installer) proven(ctx context.Context, s control.Step, w *Workflow, said schemas.Sentence) (control.Verdict, schemas.Sentence, error) {
	if i.wipes == nil {
		return control.Pending, said, fmt.Errorf("%w: nobody here keeps what is found of drives", control.ErrCannot)
	}
	found, told, err := i.wipes.Found(ctx, s.ID)
	if err == nil {
		err = i.wipes.Close(ctx, s.ID)
	}
	if err != nil {
		return control.Pending, said, err
	}
	args := messages.Args{"server": s.Server, "saw": said}
	switch {
	case !told:
		return control.Failed, messages.New(messages.WipeUntold, args), nil
	case !found.Proven:
		return control.Failed, messages.New(messages.WipeUnproven, messages.Args{"server": s.Server, "findings": wipe.Findings(found.Drives, false)}), nil
	case w.state() != stateSuccess:
		return control.Failed, said, nil
	}
	return control.Verified, messages.New(messages.WipeProven, messages.Args{"server": s.Server, "n": len(found.Drives), "findings": wipe.Findings(found.Drives, true)}), nil
}
