package fit

import (
	"math/bits"
	"time"

	"auspex/allocator/fit/messages"
)

// reason is why a server was not chosen, in the order in which it is asked.
type reason uint8

const (
	fits reason = iota
	notAsked
	excepted
	otherPool
	otherLabels
	otherServer
	otherModel
	littleMemory
	fewGPUs
	notReady
	held
	bare
	repaired
	unwell
	gpuBroken
	taken
	risky
	noPlace
	domainShort
	tooNear
	lessDomain
	lessSize
	lessHealth
	lessRisk
	lessFailed
	lessPacked
	lessName
	reasons
)

var words = [reasons]string{
	notAsked: messages.NotAsked, excepted: messages.Excepted, otherPool: messages.Pool, otherLabels: messages.Labels,
	otherServer: messages.ServerModel, otherModel: messages.Model, littleMemory: messages.Memory, fewGPUs: messages.FewGPUs,
	notReady: messages.Status, held: messages.Hold, bare: messages.Bare, repaired: messages.Case, unwell: messages.Health, gpuBroken: messages.GPUError,
	taken: messages.Taken, risky: messages.Risk, noPlace: messages.NoPlace, domainShort: messages.DomainShort, tooNear: messages.TooNear,
	lessDomain: messages.LessDomain, lessSize: messages.LessSize, lessHealth: messages.LessHealth, lessRisk: messages.LessRisk,
	lessFailed: messages.LessFailed, lessPacked: messages.LessPacked, lessName: messages.LessName,
}

// filter is the hard filters: the first that a server fails, and else which GPUs of it are free.
func (p *plan) filter(v *View, r *row) (why reason, free uint64, risked float64) {
	switch {
	case p.among != nil && !p.among[r.name]:
		return notAsked, 0, 0
	case p.except != nil && p.except[r.name]:
		return excepted, 0, 0
	}
	wanted := r.all
	if p.gpus != nil {
		wanted = 0
		for i, g := range r.gpus {
			if p.gpus[g] {
				wanted |= 1 << i
			}
		}
		if wanted == 0 {
			return notAsked, 0, 0
		}
	}
	if p.pool != 0 && r.pool != p.pool {
		return otherPool, 0, 0
	}
	for _, l := range p.labels {
		found := false
		for _, o := range r.labels {
			found = found || o == l
		}
		if !found {
			return otherLabels, 0, 0
		}
	}
	if p.ServerModel != "" && !matches(p.models, v, p.ServerModel, r.model) {
		return otherServer, 0, 0
	}
	match, why := p.suited(v, r, wanted)
	if why != fits {
		return why, 0, 0
	}
	switch {
	case r.status != p.ready:
		return notReady, 0, 0
	case r.hold != "":
		return held, 0, 0
	case r.bare && !p.Install:
		return bare, 0, 0
	case r.open != "":
		return repaired, 0, 0
	case r.health > p.MinHealth:
		return unwell, 0, 0
	}
	free, why = p.free(r, match)
	if why != fits {
		return why, 0, 0
	}
	if len(r.risks) > 0 {
		if risked, _, _ = risk(r.risks, p.Until); p.risk < 1 && risked > p.risk+1e-9 { // a hair, since 1-(1-p) is not p
			return risky, 0, risked
		}
	}
	if p.Together != Anywhere && p.domain(r) == 0 {
		return noPlace, 0, 0
	}
	for _, c := range p.caps {
		if c.over == Feeds && len(r.feeds) == 0 || c.over == Racks && r.rack == 0 {
			return noPlace, 0, 0
		}
	}
	return fits, free, risked
}

// suited is which GPUs of a server are of the kind that was asked for.
func (p *plan) suited(v *View, r *row, wanted uint64) (match uint64, why reason) {
	var model, memory uint64
	for i := range r.kinds {
		k := &r.kinds[i]
		if p.Model != "" && !matches(p.gpuModels, v, p.Model, k.model) {
			continue
		}
		model |= k.mask
		if k.memory >= p.MinMemoryGB {
			memory |= k.mask
		}
	}
	// Whoever gets all GPUs of a server, or GPUs by name, gets none that was not asked for.
	all := p.exclusive || p.mode == named
	switch {
	case p.Model != "" && (model&wanted == 0 || all && model&wanted != wanted):
		return 0, otherModel
	case p.MinMemoryGB > 0 && (memory&wanted == 0 || all && memory&wanted != wanted):
		return 0, littleMemory
	case bits.OnesCount64(memory&wanted) < p.per:
		return 0, fewGPUs
	}
	return memory & wanted, fits
}

// free is which GPUs of those that match are nobody's in the asked time.
func (p *plan) free(r *row, match uint64) (free uint64, why reason) {
	busy, any := r.taken(p.from, p.until)
	least := p.per
	if p.mode == named {
		least = bits.OnesCount64(match)
	}
	switch {
	case p.exclusive && r.broken != 0:
		return 0, gpuBroken
	case p.exclusive && (any || r.stuck != 0):
		return 0, taken
	case p.exclusive:
		return r.all, fits
	case bits.OnesCount64(match&^r.broken) < least:
		return 0, gpuBroken
	}
	free = match &^ r.broken &^ busy &^ r.stuck
	if bits.OnesCount64(free) < least {
		return 0, taken
	}
	return free, fits
}

// domain is what a server shares with others, of what was asked; 0 is nothing.
func (p *plan) domain(r *row) sym {
	switch p.Together {
	case Rack:
		return r.rack
	case Rail:
		return r.rail
	case NVLink:
		return r.nvlink
	}
	return 0
}

// since is a step of the time since the last failure of a server: 0 is a year and more, or never.
func (p *plan) since(r *row) uint64 {
	if r.failed == 0 {
		return 0
	}
	age := time.Duration(p.from - r.failed)
	for i, at := range [...]time.Duration{365 * day, 90 * day, 30 * day, 7 * day, day} {
		if age >= at {
			return uint64(i)
		}
	}
	return 5
}

const day = 24 * time.Hour
