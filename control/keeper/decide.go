package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/reasons"
	"auspex/internal/store/configs"
	"auspex/schemas"
)

const (
	day = 24 * time.Hour
	// refusedPause is the first pause after control refused; it doubles up to refusedMost.
	refusedPause = 10 * time.Minute
	refusedMost  = 4 * time.Hour
)

// look is what one visit to a server saw of a configuration.
type look struct {
	now  time.Time
	want configs.Wanted

	action *schemas.Action // what became of the operation that is under way; nil is not known

	read    bool // it was tried
	reading *control.Reading
	err     error

	mode string
	busy bool // another operation that was asked for here is under way on the server
	// window says why nothing is done on the server now; the zero sentence that nothing speaks against it.
	window func() (schemas.Sentence, error)
}

// request is what control is to be asked for.
type request struct {
	kind   string
	with   map[string]string
	reason string
}

// judge decides about one configuration. It performs no I/O but that of a look.
type judge struct {
	cfg Config
	st  *schemas.ConfigState
	look

	again bool // it is to be read again soon
}

// decide brings a state up to what was seen, and returns what is to be asked for, or nil.
func (j *judge) decide() (*request, error) {
	st, w := j.st, &j.want
	st.Subject, st.Kind, st.Name, st.Server = w.Subject, w.Kind, w.Name, w.Server
	if st.Version != w.Version {
		j.anew()
	}
	if st.Operation != "" { // what was read meanwhile may be of before it
		if !j.ended() {
			st.State = schemas.ConfigApplying
		}
		return nil, nil
	}
	j.forget()
	switch {
	case w.Empty:
		st.Applied, st.Kept, st.Unread = w.Version, nil, ""
		j.settled()
		return nil, nil
	case w.Err != nil:
		j.cannot(w.Err)
		return nil, nil
	case !j.read:
		return nil, nil
	case j.reading == nil:
		j.unread()
		return nil, nil
	}
	st.Found, st.Coming, st.ReadAt, st.Unread = j.reading.Has, j.reading.Coming, j.now, ""
	return j.judge()
}

// anew begins with a version that was stored since. What an older one left standing ends with it.
func (j *judge) anew() {
	st := j.st
	st.Version, st.Refusals, st.Next, st.Tries, st.Suspect, st.Before, st.Why, st.Undone, st.Rolled = j.want.Version, 0, time.Time{}, nil, "", nil, "", false, false
	j.fail("")
	for len(st.Drifts) > 0 {
		j.cleared(0)
	}
	j.become(schemas.ConfigPending, messages.ConfigPending, messages.Args{"version": st.Version, "settings": pairs(j.want.With)})
}

// become sets the state and why.
func (j *judge) become(state, id string, args messages.Args) {
	j.st.State, j.st.Sentence = state, messages.New(id, args)
}

func (j *judge) cannot(err error) {
	j.become(schemas.ConfigCannot, messages.ConfigCannot, messages.Args{"error": err.Error()})
}

// forget drops what is more than a day old. A version that was never in force is not tried more often because
// time passes: its settings may wait for one restart in a month.
func (j *judge) forget() {
	st := j.st
	old := j.now.Add(-day)
	if st.Applied == st.Version || st.Undone {
		st.Tries = slices.DeleteFunc(st.Tries, old.After)
	}
	for setting, told := range st.Raises {
		told = slices.DeleteFunc(told, func(at int64) bool { return at < old.Unix() })
		if st.Raises[setting] = told; len(told) == 0 {
			delete(st.Raises, setting)
		}
	}
}

// ended takes up what became of the operation that was under way, and reports whether it has ended.
func (j *judge) ended() bool {
	a, st := j.action, j.st
	if a == nil {
		return false
	}
	why := cmp.Or(a.Detail, a.VerifiedBy, a.State)
	switch a.State {
	case schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionRefused, schemas.ActionCancelled:
	case schemas.ActionProposed:
		if a.Detail == a.Why { // it has yet to look what it would do
			return false
		}
	default:
		return false
	}
	undoes, of := st.Undoes, st.Of
	st.Operation, st.Request, st.Undoes, st.Of = "", nil, false, 0
	if of != st.Version {
		return true
	}
	switch a.State {
	case schemas.ActionDone:
		st.Refusals = 0
		if st.Failure == "" {
			j.become(schemas.ConfigPending, messages.ConfigPending, messages.Args{"version": st.Version, "settings": pairs(j.want.With)})
		}
	case schemas.ActionFailed, schemas.ActionUnknown:
		st.Why, st.Refusals = why, 0
		if undoes {
			j.hold()
			break
		}
		j.become(schemas.ConfigPending, messages.ConfigFailed, messages.Args{"version": st.Version, "n": len(st.Tries), "of": j.cfg.Attempts, "why": why})
	default: // nothing was done
		if !undoes && len(st.Tries) > 0 {
			st.Tries = st.Tries[:len(st.Tries)-1]
		}
		if forGood(a) {
			st.Refusals, st.Refusal = 0, why
			j.cannot(errors.New(why))
			j.fail(schemas.ConfigCannot)
			break
		}
		st.Next = j.now.Add(min(refusedPause<<min(st.Refusals, 10), refusedMost))
		st.Refusals++
		st.Refusal = why
		j.become(schemas.ConfigPending, messages.ConfigRefused, messages.Args{"why": why})
	}
	return true
}

// forGood reports whether an operation was refused for what it asks for: a setting that the device does not have, or a
// value that it does not take. It says so again tomorrow, until another version is stored.
func forGood(a *schemas.Action) bool {
	return a.State == schemas.ActionRefused && a.DetailSentence != nil && slices.Contains([]string{messages.PeerError, messages.BadWith}, a.DetailSentence.ID)
}

// unread notes that nobody could read it.
func (j *judge) unread() {
	st := j.st
	err := j.err
	if err == nil {
		err = fmt.Errorf("nothing was read of %s", st.Name)
	}
	st.Unread = err.Error()
	switch {
	case errors.Is(err, control.ErrCannot):
		if st.Applied != st.Version {
			j.cannot(err)
		}
	case st.State == schemas.ConfigPending && st.Refusals == 0 && len(st.Tries) == 0:
		j.become(schemas.ConfigPending, messages.ConfigUnread, messages.Args{"error": err.Error()})
	}
}

// target is what is to be in force: the latest version, or what it was rolled back to.
func (j *judge) target() map[string]string {
	if j.st.Rolled {
		return j.st.Kept
	}
	return j.want.With
}

// judge holds what was read against what is to be.
func (j *judge) judge() (*request, error) {
	st, w := j.st, &j.want
	if differ, unseen := differing(w.With, st.Found); len(differ)+len(unseen) == 0 {
		if st.Applied != w.Version || st.Failure != "" {
			st.AppliedAt = j.now
		}
		st.Applied, st.Kept, st.Before, st.Suspect, st.Why, st.Refusals, st.Undone, st.Rolled = w.Version, w.With, nil, "", "", 0, false, false
		j.settled()
		return nil, nil
	}
	target := j.target()
	differ, unseen := differing(target, st.Found)
	switch {
	case st.Rolled && len(differ) == 0:
		if !st.Undone {
			st.Undone, st.Tries, st.Next = true, nil, time.Time{}
		}
		st.Suspect = ""
		j.settled()
		return nil, nil
	case st.Applied == w.Version && !st.Rolled, st.Undone: // it was in force once
		if len(differ) == 0 {
			st.Suspect = ""
			j.gone(nil)
			j.become(schemas.ConfigInForce, messages.ConfigUnseen, messages.Args{"settings": strings.Join(unseen, ", ")})
			return nil, nil
		}
		if !j.confirmed(differ) {
			return nil, nil
		}
		j.drifted(target, differ)
	}
	return j.set(target)
}

// settled says how all is as it should be.
func (j *judge) settled() {
	st := j.st
	j.gone(nil)
	if st.Rolled {
		j.become(schemas.ConfigRolledBack, messages.ConfigRolledBack, messages.Args{"version": st.Version, "why": st.Why})
		j.fail(schemas.ConfigRolledBack)
		return
	}
	j.fail("")
	j.become(schemas.ConfigInForce, messages.ConfigInForce, messages.Args{"version": st.Version})
}

// confirmed reports whether settings differ that an earlier reading has shown to, or that were told already:
// what is set while it is read, or by a restart that has not ended, is no drift.
func (j *judge) confirmed(differ []string) bool {
	st := j.st
	names := strings.Join(differ, ",")
	known := st.Suspect == names || !slices.ContainsFunc(differ, func(name string) bool { return j.drift(name) < 0 })
	st.Suspect = names
	if !known {
		j.again = true
		st.Sentence = messages.New(messages.ConfigSuspect, messages.Args{"changes": changes(j.target(), st.Found, differ)})
	}
	return known
}

// drift is the place of a setting among the drifts, or -1.
func (j *judge) drift(setting string) int {
	return slices.IndexFunc(j.st.Drifts, func(d schemas.ConfigDrift) bool { return d.Setting == setting })
}

// drifted tells what is not as it was any more: once, and again where it is found otherwise.
func (j *judge) drifted(target map[string]string, differ []string) {
	st := j.st
	j.gone(differ)
	for _, name := range differ {
		d := schemas.ConfigDrift{Setting: name, Desired: target[name], Found: st.Found[name], Since: j.now}
		i := j.drift(name)
		if i < 0 {
			st.Drifts = append(st.Drifts, d)
			i = len(st.Drifts) - 1
		} else {
			old := &st.Drifts[i]
			old.Gone = time.Time{}
			if same(old.Found, d.Found) && same(old.Desired, d.Desired) {
				continue
			}
			d.Since = old.Since
			*old = d
		}
		if st.Raises == nil {
			st.Raises = map[string][]int64{}
		}
		st.Raises[name] = append(st.Raises[name], j.now.Unix())
		j.tell(&st.Drifts[i], schemas.StateRaised)
	}
	j.become(schemas.ConfigDrifted, messages.ConfigDrifted, messages.Args{"changes": changes(target, st.Found, differ)})
}

// gone ends drifts that are not among what differs. One that comes and goes has to stay away the longer, the
// more often it came within a day.
func (j *judge) gone(differ []string) {
	st := j.st
	for i := 0; i < len(st.Drifts); {
		d := &st.Drifts[i]
		if slices.Contains(differ, d.Setting) {
			i++
			continue
		}
		if d.Gone.IsZero() {
			d.Gone = j.now
		}
		if j.now.Sub(d.Gone) < time.Duration(len(st.Raises[d.Setting])-1)*j.cfg.Read {
			i++
			continue
		}
		j.cleared(i)
	}
}

func (j *judge) cleared(i int) {
	j.tell(&j.st.Drifts[i], schemas.StateCleared)
	j.st.Drifts = slices.Delete(j.st.Drifts, i, i+1)
}

// tell makes the event of a drift.
func (j *judge) tell(d *schemas.ConfigDrift, state string) {
	st := j.st
	text := fmt.Sprintf("%s of %s is %s, and version %d of its configuration (%s) has %s", d.Setting, st.Name, d.Found, st.Version, j.want.By, d.Desired)
	if state == schemas.StateCleared {
		text = fmt.Sprintf("%s of %s is no longer held against %s", d.Setting, st.Name, d.Desired)
		if v, told := st.Found[d.Setting]; told && same(v, d.Desired) {
			text = fmt.Sprintf("%s of %s is %s again", d.Setting, st.Name, d.Desired)
		}
	}
	j.event(schemas.EventConfigDrift, configs.FieldOf(st.Kind, d.Setting), state, text, map[string]string{
		"setting": d.Setting, "desired": d.Desired, "found": d.Found, "since": d.Since.UTC().Format(time.RFC3339),
	})
}

// fail ends the event of a failure that stands, and tells another; "" is none.
func (j *judge) fail(code string) {
	st := j.st
	if st.Failure == code {
		return
	}
	if st.Failure != "" {
		j.event(schemas.EventConfigFailed, st.Failure, schemas.StateCleared, fmt.Sprintf("the configuration of %s has gone on", st.Name), nil)
	}
	if st.Failure = code; code != "" {
		j.event(schemas.EventConfigFailed, code, schemas.StateRaised, fmt.Sprintf("configuration of %s: %s", st.Name, messages.Text(st.Sentence)), nil)
	}
}

func (j *judge) event(typ, code, state, text string, attrs map[string]string) {
	st := j.st
	if attrs == nil {
		attrs = map[string]string{}
	}
	attrs["version"], attrs["by"] = strconv.FormatInt(st.Version, 10), j.want.By
	st.Untold = append(st.Untold, schemas.Event{
		ID:   schemas.EventID(st.Server, "config", st.Subject, typ, code, state, text, strconv.FormatInt(j.now.UnixNano(), 10)),
		Time: j.now.UTC(), Observed: j.now.UTC(), Source: schemas.SourceControl, Resource: st.Name, Type: typ, Code: code,
		Severity: schemas.SeverityWarning, State: state, Message: text, Attrs: attrs,
	})
}

// hold leaves it to a person.
func (j *judge) hold() {
	st := j.st
	n := len(st.Tries)
	why := st.Why
	if why == "" {
		why = messages.Text(messages.New(messages.ConfigOften, messages.Args{"n": n}))
	}
	j.become(schemas.ConfigHeld, messages.ConfigHeld, messages.Args{"n": n, "why": why})
	j.fail(schemas.ConfigHeld)
}

// set has what is to be set, unless something speaks against it.
func (j *judge) set(target map[string]string) (*request, error) {
	st, w := j.st, &j.want
	undoes := st.Rolled && !st.Undone
	resets := w.Step == configs.SetBIOS && j.cfg.Reset
	if len(st.Coming) > 0 && !resets {
		if differ, unseen := differing(target, st.Coming); len(differ)+len(unseen) == 0 {
			j.become(schemas.ConfigAwaits, messages.ConfigAwaits, messages.Args{"server": st.Server, "settings": pairs(target)})
			return nil, nil
		}
	}
	switch {
	case st.Failure == schemas.ConfigHeld:
		j.hold()
		return nil, nil
	case st.Failure == schemas.ConfigCannot:
		j.cannot(errors.New(st.Refusal))
		return nil, nil
	case !undoes && len(st.Tries) >= j.cfg.Attempts:
		if st.Applied == st.Version || st.Rolled || !j.rollBack() {
			j.hold()
			return nil, nil
		}
		return j.judge()
	case !j.cfg.Enforce || j.mode != schemas.ModeEnforce:
		differ, unseen := differing(target, st.Found)
		st.Sentence = messages.New(messages.ConfigMode, messages.Args{
			"mode": j.mode, "enforce": j.cfg.Enforce, "changes": changes(target, st.Found, slices.Concat(differ, unseen)),
		})
		return nil, nil
	case j.now.Before(st.Next) && st.Refusals > 0:
		st.Sentence = messages.New(messages.ConfigRefused, messages.Args{"why": st.Refusal})
		return nil, nil
	case j.busy || j.now.Before(st.Next):
		return nil, nil
	}
	if why, err := j.window(); err != nil {
		return nil, err
	} else if why.ID != "" {
		st.Sentence = why
		return nil, nil
	}
	r := &request{kind: w.Step, with: maps.Clone(target), reason: reasons.Text(reasons.KeepsConfig, reasons.Args{"version": st.Version})}
	if resets {
		r.with[policy.Reset] = "true"
	}
	st.AskedAt, st.Of, st.Undoes = j.now, st.Version, undoes
	if undoes {
		r.reason = reasons.Text(reasons.UndoConfig, reasons.Args{"version": st.Version})
		j.become(schemas.ConfigApplying, messages.ConfigUndoes, messages.Args{"version": st.Version, "why": st.Why})
		return r, nil
	}
	if st.Applied != st.Version && st.Before == nil {
		st.Before = map[string]string{}
		for name := range target {
			if v, ok := st.Found[name]; ok {
				st.Before[name] = v
			}
		}
	}
	st.Tries = append(st.Tries, j.now)
	st.Next = j.now.Add(j.cfg.CoolDown << min(len(st.Tries)-1, 10))
	j.become(schemas.ConfigApplying, messages.ConfigAsked, messages.Args{"version": st.Version, "n": len(st.Tries), "of": j.cfg.Attempts})
	return r, nil
}

// rollBack makes what was in force before what is to be: the last version that was, and of settings that it
// does not have how they were found. It reports whether there is anything.
func (j *judge) rollBack() bool {
	st := j.st
	kept := map[string]string{}
	maps.Copy(kept, st.Before)
	maps.Copy(kept, st.Kept)
	if len(kept) == 0 {
		return false
	}
	if st.Why == "" {
		differ, unseen := differing(j.want.With, st.Found)
		st.Why = changes(j.want.With, st.Found, slices.Concat(differ, unseen))
	}
	st.Kept, st.Rolled, st.Undone, st.Suspect, st.Next = kept, true, false, "", time.Time{}
	j.become(schemas.ConfigRolledBack, messages.ConfigRolledBack, messages.Args{"version": st.Version, "why": st.Why})
	j.fail(schemas.ConfigRolledBack)
	return true
}

// differing names the settings that are read otherwise than wanted, and those that nobody tells, sorted.
func differing(want, is map[string]string) (differ, unseen []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch v, told := is[name]; {
		case !told:
			unseen = append(unseen, name)
		case !same(v, want[name]):
			differ = append(differ, name)
		}
	}
	return differ, unseen
}

// same compares values as they are meant: 500 is 500.0, and True is true.
func same(a, b string) bool {
	if a == b || strings.EqualFold(a, b) && (strings.EqualFold(a, "true") || strings.EqualFold(a, "false")) {
		return true
	}
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && max(x-y, y-x) < .001
}

// changes says of settings what they are and what they are to be.
func changes(want, is map[string]string, names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		v, told := is[name]
		if !told {
			v = "?"
		}
		out[i] = fmt.Sprintf("%s %s → %s", name, v, want[name])
	}
	return strings.Join(out, ", ")
}

func pairs(with map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(with)) {
		out = append(out, name+" "+with[name])
	}
	return strings.Join(out, ", ")
}
