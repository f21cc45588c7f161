package tinkerbell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"auspex/control"
	"auspex/control/messages"
	"auspex/schemas"
)

// kindNetwork is the rung that takes back what a release leaves of a server on the network.
const kindNetwork = "reset_network"

// network is the remediator of reset_network. All that it goes by is read from the API and the board controller, each time.
type network struct {
	i    *installer
	boot control.Remediator // nil where there is none
}

// Through implements [control.Compound].
func (n *network) Through(others map[string]control.Remediator) { n.boot = others["set_boot"] }

// traces is what there is of a server on the network.
type traces struct {
	record  schemas.HardwareRecord
	ours    *Hardware  // nil where there is none
	flows   []Workflow // of ours, whose end is not finished
	over    bool       // the boot device of its next start is set
	changes []string   // what is to be taken back
	left    []string   // what others have
}

// unboot is the step that takes back what a server starts from next.
func unboot(s control.Step) control.Step {
	return part(s, "set_boot", map[string]string{"target": "none"})
}

// traces looks for them.
func (n *network) traces(ctx context.Context, s control.Step) (t traces, err error) {
	if t.record, err = n.i.record(ctx, s); err != nil {
		return t, err
	}
	all, err := n.i.allHardware(ctx)
	if err != nil {
		return t, err
	}
	name := label(t.record.Name)
	for k := range all {
		if one := &all[k]; one.mineOf(&t.record) {
			t.ours, name = one, one.Name
		} else if says := n.i.claims(one, &t.record); says != "" {
			if one.open() {
				says += ", and lets it start from the network"
			}
			t.left = append(t.left, says)
		}
	}
	flows, err := n.i.allWorkflows(ctx)
	if err != nil {
		return t, err
	}
	var others []Workflow
	for k := range flows {
		switch w := &flows[k]; {
		case !w.ours():
			others = append(others, *w)
		case w.touches(name, macs(&t.record)) && w.Annotations[closedAt] == "":
			t.flows = append(t.flows, *w)
			t.changes = append(t.changes, fmt.Sprintf("workflow %s/%s is %s", w.Namespace, w.Name, w.state()))
		}
	}
	if err := rival(others, &t.record, name, ""); err != nil {
		return t, err
	}
	if h := t.ours; h != nil {
		changes, left := h.strays(&t.record)
		t.changes, t.left = append(t.changes, changes...), append(t.left, left...)
	}
	said, v, why, err := n.override(ctx, s)
	switch t.over = v == control.Pending && why == ""; {
	case why != "":
		t.left = append(t.left, why)
	case t.over && err == nil:
		t.changes = append(t.changes, messages.Text(said))
	}
	return t, err
}

// override reads what a server starts from next; why is that nobody here can tell.
func (n *network) override(ctx context.Context, s control.Step) (said schemas.Sentence, v control.Verdict, why string, err error) {
	if n.boot == nil {
		return said, v, "what it starts from next, which nobody here reads", nil
	}
	if _, err = n.boot.Plan(ctx, unboot(s)); errors.Is(err, control.ErrCannot) {
		return said, v, "what it starts from next: " + err.Error(), nil
	} else if err != nil {
		return said, v, "", err
	}
	v, said, err = n.boot.Verify(ctx, unboot(s))
	return said, v, "", err
}

// strays are the fields of hardware of ours that are not as a record has them, and those that others have.
func (h *Hardware) strays(r *schemas.HardwareRecord) (changes, left []string) {
	want := derived(r)
	says, is, theirs, gone := want.says(), h.Spec.says(), map[string]bool{}, h.stale(r)
	for _, d := range h.theirs(says) {
		theirs[d.Field] = true
		left = append(left, fmt.Sprintf("%s (%s)", worded([]schemas.Foreign{d}), d.Owner))
	}
	for _, d := range h.Spec.differs(says) {
		if !theirs[d.Field] {
			changes = append(changes, worded([]schemas.Foreign{d}))
		}
	}
	for _, field := range gone {
		changes = append(changes, fmt.Sprintf("%s is %s, and the record says nothing", field, is[field]))
	}
	if h.open() || h.Annotations[netbootFor] != "" {
		changes = append(changes, strings.TrimSpace("it may start from the network "+h.Annotations[netbootFor]))
	}
	for _, field := range beside("spec", object(h.Spec), object(want)) {
		if !slices.Contains(gone, field) && !theirs[field] {
			by, _ := h.fieldOwner(field)
			left = append(left, fmt.Sprintf("%s (%s)", field, by))
		}
	}
	return changes, left
}

// object is a value as JSON has it.
func object(v any) (out map[string]any) {
	b, err := json.Marshal(v)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return nil
	}
	return out
}

// beside are the fields that there are and that a record says nothing of. Which board controller a machine has is no field of its network.
func beside(path string, is, want map[string]any) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(is)) {
		field := path + "." + key
		wanted, said := want[key]
		switch v := is[key].(type) {
		case map[string]any:
			if of, same := wanted.(map[string]any); said && same {
				out = append(out, beside(field, v, of)...)
				continue
			}
		case []any:
			if field == "spec.interfaces" {
				out = append(out, ofInterfaces(v, wanted)...)
				continue
			}
		}
		if !said && field != fieldBMC && !nothing(is[key]) {
			out = append(out, field)
		}
	}
	return out
}

// nothing reports whether a value says nothing, such as those that the schema of the API fills in.
func nothing(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil || v == false || v == "" || v == 0.0
}

// ofInterfaces is beside of those interfaces that a record has too.
func ofInterfaces(is []any, want any) (out []string) {
	wanted, _ := want.([]any)
	for _, v := range is {
		one, _ := v.(map[string]any)
		for _, v := range wanted {
			if other, _ := v.(map[string]any); macOf(one) != "" && macOf(one) == macOf(other) {
				out = append(out, beside(interfaceField(macOf(one)), one, other)...)
			}
		}
	}
	return out
}

func listed(all []string) string { return cmp.Or(strings.Join(all, "; "), "-") }

func (t *traces) sentence(id string, s control.Step) schemas.Sentence {
	return messages.New(id, messages.Args{"server": s.Server, "changes": listed(t.changes), "left": listed(t.left)})
}

// Plan implements control.Remediator.
func (n *network) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	t, err := n.traces(ctx, s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	return t.sentence(messages.WouldResetNetwork, s), nil
}

// Apply implements control.Remediator. The start from the network is closed first, since that alone would do harm by itself.
func (n *network) Apply(ctx context.Context, s control.Step) error {
	t, err := n.traces(ctx, s)
	if err != nil {
		return rejected(err)
	}
	asked := false
	did := func(err error) error {
		if err != nil && asked { // what came before it was done
			return errors.New(err.Error())
		}
		asked = true
		return sent(err)
	}
	if h := t.ours; h != nil {
		if changes, _ := h.strays(&t.record); len(changes) > 0 {
			if err := did(n.i.bring(ctx, &t.record, h, true)); err != nil {
				return err
			}
		}
	}
	for k := range t.flows {
		w, undo := &t.flows[k], n.i.end
		if w.ended() {
			undo = n.i.finish
		}
		if err := did(undo(ctx, w)); err != nil {
			return err
		}
	}
	if t.over {
		return did(n.boot.Apply(ctx, unboot(s)))
	}
	return nil
}

// Settled implements control.Settler.
func (n *network) Settled(ctx context.Context, s control.Step) (bool, schemas.Sentence, error) {
	v, how, err := n.Verify(ctx, s)
	return v == control.Verified, how, err
}

// Verify implements control.Remediator.
func (n *network) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	t, err := n.traces(ctx, s)
	switch {
	case err != nil:
		return control.Pending, schemas.Sentence{}, err
	case len(t.changes) > 0:
		return control.Pending, t.sentence(messages.NetworkDiffers, s), nil
	}
	return control.Verified, t.sentence(messages.NetworkReset, s), nil
}
