package stormgen

import (
	"fmt"
	"math"
	"time"

	"auspex/schemas"
)

// said is an event, and what it came from.
type said struct {
	schemas.Event

	cause  int
	at     float64 // seconds, the true time
	seen   float64 // seconds, when its collector had it
	device int
	late   bool // on its way
	job    *job // whose end it tells
}

// raise says that a condition began; clear ends it with all who said so.
func (w *world) raise(c int, source string, part int, typ, code string, sev schemas.Severity, attrs ...string) {
	if w.say(c, source, part, typ, code, sev, schemas.StateRaised, attrs...) {
		k := condition{part: part, typ: typ}
		w.cond[k] = append(w.cond[k], raised{source + "\x00" + code, c})
	}
}

func (w *world) clear(part int, typ string) {
	k := condition{part: part, typ: typ}
	list := w.cond[k]
	delete(w.cond, k)
	for _, r := range list {
		if r.cause >= 0 && w.p(0.03) { // what never ends cannot be told from noise that does not either
			continue
		}
		var source, code string
		for i := range r.source {
			if r.source[i] == 0 {
				source, code = r.source[:i], r.source[i+1:]
			}
		}
		w.say(r.cause, source, part, typ, code, schemas.SeverityInfo, schemas.StateCleared)
	}
}

// say lets a source report something now. It returns false where nobody hears it.
func (w *world) say(c int, source string, part int, typ, code string, sev schemas.Severity, st string, attrs ...string) bool {
	return w.tell(c, source, w.parts[part].id, part, typ, code, sev, st, attrs...)
}

func (w *world) tell(
	c int, source, id string, part int, typ, code string, sev schemas.Severity, st string, attrs ...string,
) bool {
	if !w.monitored(source, typ) {
		return false
	}
	dev := -1
	if part >= 0 {
		dev = w.parts[part].dev
	}
	server := dev >= 0 && w.parts[dev].kind == schemas.KindServer
	ev := said{cause: c, at: w.now, device: dev, job: w.via}
	ev.Event = schemas.Event{Source: source, Resource: id, Type: typ, Code: code, Severity: sev, State: st}
	if w.again == nil {
		ev.Message = words(typ, code, id, st)
	}
	for i := 0; i+1 < len(attrs); i += 2 {
		ev.SetAttr(attrs[i], attrs[i+1])
	}
	lag := w.lag(source)
	wait := w.about(0.3) * lag
	clock := w.now
	hold := false
	switch source {
	case schemas.SourceKmsg:
		if server {
			if w.st[dev].dark {
				return false
			}
			wait, hold = w.about(0.1), w.st[dev].ways[agentWay].lost
		}
	case schemas.SourceDCGM, schemas.SourceNVML, schemas.SourceAgent:
		if server && (!w.running(dev) || !w.reach(dev)) {
			return false
		}
		wait = w.about(1) * lag
		if source == schemas.SourceDCGM {
			wait = w.span(0, 6) * lag
		}
	case schemas.SourceIPMI:
		if server {
			if !w.standby(dev) {
				return false
			}
			b := w.bmc(dev)
			period := 10 + 20*math.Mod(w.st[dev].poll*7, 1)
			wait = period - math.Mod(w.now+w.st[dev].poll, period) + w.about(0.5)
			hold = !w.reachBMC(dev)
			clock = math.Floor(clock)
			if b >= 0 {
				clock += math.Round(w.st[b].skew)
			}
		}
	case schemas.SourceRedfish:
		if server {
			if !w.reachBMC(dev) {
				return false
			}
			wait, clock = w.about(1.5)*lag, math.Floor(clock)
		}
	case schemas.SourceGNMI:
		if dev >= 0 && !w.running(dev) {
			return false
		}
	case schemas.SourceRule:
		wait = w.about(1) * lag
	case schemas.SourceCollector:
		wait = 0.01
	}
	ev.Time = clockTime(clock)
	ev.seen = w.now + wait
	if hold {
		if w.p(0.75) {
			key := dev * 2
			if source == schemas.SourceIPMI {
				key++
			}
			w.held[key] = append(w.held[key], ev)
			return true
		}
		return false
	}
	w.read(ev)
	return true
}

// read takes a record from a device's log: those that a collector reads itself
// come in the order in which they were written.
func (w *world) read(ev said) {
	if ev.device >= 0 && (ev.Source == schemas.SourceKmsg || ev.Source == schemas.SourceIPMI) {
		key := logOf{ev.device, ev.Source}
		ev.seen = max(ev.seen, w.log[key])
		w.log[key] = ev.seen
	}
	w.out = append(w.out, ev)
}

// logOf names a log of a device.
type logOf struct {
	device int
	source string
}

// flush hands over the records that waited for a device to be reached.
func (w *world) flush(dev int, bmc bool) {
	key := dev * 2
	if bmc {
		key++
	}
	at := w.now + w.about(5)
	for _, ev := range w.held[key] {
		at += 0.01
		ev.seen = at
		w.read(ev)
	}
	delete(w.held, key)
}

// epoch stands for the start until the storm is dated.
var epoch = time.Unix(0, 0).UTC()

func clockTime(sec float64) time.Time {
	return epoch.Add(time.Duration(sec*1e6) * time.Microsecond)
}

// words are what a device might write; sites differ, so nothing may hang on them.
func words(typ, code, id, st string) string {
	switch typ {
	case schemas.EventGPUXID:
		return fmt.Sprintf("NVRM: Xid: %s, on %s", code, id)
	case schemas.EventNVSwitchSXid:
		return fmt.Sprintf("nvidia-nvswitch: SXid: %s, on %s", code, id)
	}
	s := typ
	if code != "" {
		s += " " + code
	}
	if st != "" {
		s += " " + st
	}
	return s + " on " + id
}
