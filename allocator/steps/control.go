package steps

import (
	"cmp"
	"context"
	"slices"
	"time"

	"auspex/internal/reasons"
	"auspex/schemas"
)

// Control asks the stage control, which alone touches devices: it has the rails, the budgets and
// the leases, and reads each effect back.
type Control struct {
	// Ask publishes a request. The same one again is the same action.
	Ask func(ctx context.Context, in schemas.Intent) error
	// Action reads how far an action is.
	Action func(ctx context.Context, id string) (schemas.Action, bool, error)
	Now    func() time.Time
	// Mode is the most that control would do now of a kind of step on a server, and Works reports whether it works there.
	Mode  func(ctx context.Context, server, kind string) (string, error)
	Works func(ctx context.Context, server string) (bool, error)
}

// ofServer are the steps that are done to a server as a whole.
var ofServer = []string{Drain, Uncordon, "power_on", "power_off", "power_cycle", "reboot", "set_boot", Install, "reinstall", Wipe, Update, SetBIOS, ResetNetwork}

// OfServer reports whether a step is done to a server as a whole, whoever has its parts.
func OfServer(name string) bool { return name == ResetBIOS || slices.Contains(ofServer, name) }

// Kinds implements [Driver].
func (c Control) Kinds() []string {
	return append(slices.Clone(ofServer), "validate", "reset_gpu", "configure_gpu")
}

// Do implements [Driver].
func (c Control) Do(ctx context.Context, j Job) (Progress, error) {
	id := j.ID()
	a, found, err := c.Action(ctx, id)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Operation: id}
	if !found {
		p.Message = reasons.Text(reasons.Asked, nil)
		if err := c.Ask(ctx, schemas.Intent{
			ID: id, Time: c.Now().UTC(), Verb: schemas.IntentRequest, Action: id, Server: j.Workflow.Server, Target: j.Step.Target, Kind: j.Step.Name, With: j.Step.With,
			Reason: reasons.Text(reasons.Workflow, reasons.Args{"workflow": j.Workflow.ID}), Actor: j.Workflow.CreatedBy,
		}); err != nil {
			return p, reasons.Error(reasons.NotAsked, reasons.Args{"step": j.Step.Name}, err)
		}
		return p, nil
	}
	p.Stages = a.Stages
	said := cmp.Or(a.VerifiedBy, a.Detail, a.State)
	switch a.State {
	case schemas.ActionDone:
		p.Done, p.Message = true, said
	case schemas.ActionProposed:
		if a.Detail == a.Why { // it has yet to look what it would do
			p.Message = reasons.Text(reasons.Looks, nil)
			break
		}
		p.Failed, p.Message = true, reasons.Text(reasons.DoesNot, reasons.Args{"mode": a.Mode, "why": cmp.Or(a.Detail, reasons.Text(reasons.Proposes, nil))})
	case schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused:
		p.Failed, p.Message = true, reasons.Text(reasons.ActionSo, reasons.Args{"state": a.State, "why": cmp.Or(a.Detail, reasons.Text(reasons.SaysNot, nil))})
	default:
		p.Message = reasons.Text(reasons.ActionSo, reasons.Args{"state": a.State, "why": cmp.Or(a.Detail, reasons.Text(reasons.WorksOn, nil))})
	}
	return p, nil
}

// Holds implements [Holder]: a bring-up waits until control acts, and for what control does on the server meanwhile. Other workflows
// fail then, as somebody waits for the server.
func (c Control) Holds(ctx context.Context, j Job) (string, error) {
	if j.Workflow.Type != schemas.WorkflowBringUp {
		return "", nil
	}
	mode, err := c.Mode(ctx, j.Workflow.Server, j.Step.Name)
	if err != nil {
		return "", err
	}
	if mode == schemas.ModeObserve || mode == schemas.ModeDryRun {
		return reasons.Text(reasons.Waits, reasons.Args{"why": reasons.Text(reasons.ModeHolds, reasons.Args{"mode": mode, "step": j.Step.Name})}), nil
	}
	busy, err := c.Works(ctx, j.Workflow.Server)
	if err != nil || !busy {
		return "", err
	}
	return reasons.Text(reasons.WorksOn, nil), nil
}

// Stop implements [Stopper]: what waits is not begun, and what goes on and can be ended is ended.
func (c Control) Stop(ctx context.Context, j Job) (bool, error) {
	id := j.ID()
	a, found, err := c.Action(ctx, id)
	if err != nil || !found || a.Ended() {
		return err == nil, err
	}
	return false, c.Ask(ctx, schemas.Intent{
		ID: schemas.EventID("intent", id, schemas.IntentCancel), Time: c.Now().UTC(), Verb: schemas.IntentCancel, Action: id, Server: j.Workflow.Server, Kind: a.Kind,
		Reason: reasons.Text(reasons.Workflow, reasons.Args{"workflow": j.Workflow.ID}), Actor: stopper,
	})
}

// stopper is who ends what a workflow that has failed had begun.
const stopper = "allocator"
