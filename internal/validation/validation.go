// Package validation adds to what a node agent tested of a server what collectors and the inventory tell of it, and compares it with
// the rest of the fleet. What nobody can tell is not seen, and never passed.
package validation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/store/validations"
	"auspex/schemas"
)

// World is what is known of a server beside the tests of its agent.
type World struct {
	// Answered is how many GPUs the agent could test where it was to test all; nil where it was not.
	Answered *int
	GPUs     []schemas.GPU      // of the server, in the inventory
	Parts    []schemas.Resource // of the server
	Fleet    validations.Fleet
	// Read is when each part was read last, and Values what was read of it last, by metric; nil where no telemetry is seen here.
	Read   map[string]time.Time
	Values map[string]map[string]float64
	// Speeds are those of the ports of other servers of the model, in bit/s, by what the port is called in its server.
	Speeds map[string][]float64
}

// Metrics that are looked at.
const (
	NICUp    = "auspex_nic_up"
	NICSpeed = "auspex_nic_speed_bits_per_second"
)

// Recent is how old a reading may be that counts.
const Recent = 5 * time.Minute

// checker gathers checks.
type checker struct {
	w      *World
	server string
	at     time.Time
	out    []schemas.ValidationCheck
}

// Checks are those that the world tells, at a time.
func Checks(server string, w *World, at time.Time) []schemas.ValidationCheck {
	c := &checker{w: w, server: server, at: at}
	c.count()
	for i := range w.GPUs {
		g := &w.GPUs[i]
		seen := ""
		if g.MemoryGB != nil {
			seen = strconv.FormatFloat(*g.MemoryGB, 'f', -1, 64)
		}
		c.like("memory", g.Name, seen, " GB", w.Fleet.Memory[g.Model], schemas.CheckFailed)
		c.like("driver_version", g.Name, g.DriverVersion, "", w.Fleet.Drivers[g.Model], schemas.CheckWarned)
	}
	c.telemetry()
	for i := range w.Parts {
		if p := &w.Parts[i]; p.Kind == schemas.KindNIC {
			c.link(p)
		}
	}
	return c.out
}

func (c *checker) add(k schemas.ValidationCheck) { c.out = append(c.out, k) }

// most is what most have, and of how many: of equals the least.
func most(counts map[string]int) (value string, of int) {
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		if of += counts[v]; value == "" || counts[v] > counts[value] {
			value = v
		}
	}
	return value, of
}

// count compares how many GPUs answer with the inventory, and that with the others of the model.
func (c *checker) count() {
	seen := strconv.Itoa(len(c.w.GPUs))
	k := schemas.ValidationCheck{Name: "gpu_count", Verdict: schemas.CheckNotSeen, Source: schemas.SeenByAgent, Expected: seen, Detail: "not all GPUs were to be tested"}
	if c.w.Answered != nil {
		k.Seen, k.Verdict, k.Detail = strconv.Itoa(*c.w.Answered), schemas.CheckPassed, ""
		if k.Seen != k.Expected {
			k.Verdict = schemas.CheckFailed
		}
	}
	c.add(k)
	c.like("gpu_count", "", seen, "", c.w.Fleet.GPUs, schemas.CheckFailed)
}

// like compares what is known of a part with what most of the fleet have. Half or fewer are no rule.
func (c *checker) like(name, part, seen, unit string, fleet map[string]int, differs string) {
	k := schemas.ValidationCheck{Name: name, Part: part, Verdict: schemas.CheckNotSeen, Source: schemas.SeenByInventory}
	want, of := most(fleet)
	if rule := of > 0 && 2*fleet[want] > of; rule {
		k.Expected, k.Fleet = number(want)+unit, true
	}
	switch {
	case seen == "":
		k.Detail = "nobody tells it"
	case !k.Fleet:
		k.Seen, k.Detail = seen+unit, "there is nothing of the model to compare it with, or no majority"
	case number(seen) != number(want):
		k.Seen, k.Verdict, k.Detail = seen+unit, differs, fmt.Sprintf("it differs from %d of %d others of its model", fleet[want], of)
	default:
		k.Seen, k.Verdict, k.Detail = seen+unit, schemas.CheckPassed, fmt.Sprintf("as %d of %d others of its model", fleet[want], of)
	}
	c.add(k)
}

// number is a text without the decimal that some stores write behind whole numbers: 80 for 80.0.
func number(text string) string { return strings.TrimSuffix(text, ".0") }

// value is what was read of a part.
func (c *checker) value(part, metric string) (float64, bool) {
	v, ok := c.w.Values[part][metric]
	return v, ok
}

// telemetry is whether each part is read.
func (c *checker) telemetry() {
	for i := range c.w.Parts {
		p := &c.w.Parts[i]
		k := schemas.ValidationCheck{Name: "telemetry", Part: p.ID, Verdict: schemas.CheckNotSeen, Source: schemas.SeenByTelemetry, Expected: "read within " + Recent.String(), Detail: "nobody reads it"}
		switch at, read := c.w.Read[p.ID]; {
		case read && c.at.Sub(at) <= Recent:
			k.Seen, k.Verdict, k.Detail = at.UTC().Format(time.RFC3339), schemas.CheckPassed, ""
		case read:
			k.Seen, k.Verdict, k.Detail = at.UTC().Format(time.RFC3339), schemas.CheckFailed, "it was read before, and is not any more"
		case p.Kind == schemas.KindGPU && c.w.Read != nil:
			k.Verdict, k.Detail = schemas.CheckFailed, "nobody reads it, and every GPU is to be"
		}
		c.add(k)
	}
}

// link is whether a port is up, and as fast as the same one of most others of the model. A port that is down is no fault where nothing
// says that it is cabled: then it is worth a look.
func (c *checker) link(p *schemas.Resource) {
	up, read := c.value(p.ID, NICUp)
	k := schemas.ValidationCheck{Name: "link", Part: p.ID, Verdict: schemas.CheckNotSeen, Source: schemas.SeenByTelemetry, Expected: "up", Detail: "nobody reads it"}
	switch {
	case read && up > 0:
		k.Seen, k.Verdict, k.Detail = "up", schemas.CheckPassed, ""
	case read:
		k.Seen, k.Verdict, k.Detail = "down", schemas.CheckWarned, ""
	}
	c.add(k)
	if !read || up == 0 {
		return
	}
	counts := map[string]int{}
	for _, x := range c.w.Speeds[strings.TrimPrefix(p.ID, c.server+"/")] {
		counts[gigabits(x)]++
	}
	k = schemas.ValidationCheck{Name: "link_speed", Part: p.ID, Verdict: schemas.CheckNotSeen, Source: schemas.SeenByTelemetry}
	want, of := most(counts)
	if of > 0 && 2*counts[want] > of {
		k.Expected, k.Fleet = want, true
	}
	speed, ok := c.value(p.ID, NICSpeed)
	switch {
	case !ok:
		k.Detail = "nobody reads it"
	case !k.Fleet:
		k.Seen, k.Detail = gigabits(speed), "there is no such port of another server of the model to compare it with, or no majority"
	default:
		k.Seen, k.Verdict = gigabits(speed), schemas.CheckPassed
		if k.Seen != want {
			k.Verdict, k.Detail = schemas.CheckFailed, fmt.Sprintf("it differs from %d of %d others", counts[want], of)
		}
	}
	c.add(k)
}

func gigabits(bits float64) string {
	return cmp.Or(strconv.FormatFloat(bits/1e9, 'f', -1, 64), "0") + " Gbit/s"
}
