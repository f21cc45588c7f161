// Package fit chooses servers and GPUs for a wish: those that may be given, near one another or
// apart as was asked, the healthiest and those least likely to fail first, and so that large
// blocks stay whole. It is a function of a view and a wish, without clock or store: what it
// chose may be gone when it is taken, and is then asked for again, without it.
//
// The order is lexicographic. Hard filters; then topology (the fewest servers, where GPUs may
// come from any number of them); health; predicted risk, in percent; age of the last failure, in
// steps; packing; name. A server is never chosen for a later one of these against an earlier one.
package fit

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
)

// DefaultMaxRisk is the risk that a wish takes which names none: a server that more likely than
// not loses a part within the asked time is not given.
const DefaultMaxRisk = 0.5

// Together is what all chosen servers are to share.
type Together string

// What may be shared. Servers of one rail group are cabled to the same set of leaf switches.
const (
	Anywhere Together = ""
	Rack     Together = "rack"
	Rail     Together = "rail"
	NVLink   Together = "nvlink"
)

// Over is what a choice may be spread over.
type Over string

// What a choice may be spread over. A server with two feeds counts on both.
const (
	Feeds Over = "feeds"
	Racks Over = "racks"
)

// Spread bounds the share of the chosen servers that one feed or rack may have. At least one
// server is always allowed.
type Spread struct {
	Over  Over
	Share float64 // in (0, 1]
}

// Wish is what somebody asks for: a number of servers, or of GPUs, or those with names.
type Wish struct {
	Servers       int // whole ones, unless GPUsPerServer says otherwise
	GPUs          int
	GPUsPerServer int // of each chosen server; with GPUs 0 is any number of each
	ServerNames   []string
	GPUNames      []string
	Except        []string // servers that are not to be chosen
	Exclusive     bool     // whole servers, with all of their GPUs
	Install       bool     // they are installed first, so that it does not matter whether they have a system

	Model       string  // of GPUs, in either case; * and ? stand for others
	ServerModel string  // in the same way
	MinMemoryGB float64 // of a GPU
	Pool        string  // "" is any
	Labels      map[string]string

	Together  Together
	Spread    []Spread
	MinHealth Health  // OK or Warning
	MaxRisk   float64 // of one server: that a part fails before Until; 0 is DefaultMaxRisk, 1 takes any

	From  time.Time
	Until time.Time // zero is open
}

// WishError is a wish that makes no sense.
type WishError struct{ Field, Reason string }

// Error implements error.
func (e *WishError) Error() string { return e.Field + " " + e.Reason }

// ErrNoFit is of a wish that nothing fits; the error is a [*NoFit].
var ErrNoFit = errors.New("nothing fits")

// mode is how servers count towards a wish.
type mode uint8

const (
	whole mode = iota // a whole server is one
	equal             // a server with so many free GPUs is one
	split             // each free GPU is one
	named             // a server with all GPUs of it that were named is one
)

// plan is a wish in the terms of a view.
type plan struct {
	*Wish
	mode        mode
	need        int // servers, or GPUs of split
	per         int // GPUs that each server must have
	exclusive   bool
	from, until int64
	risk        float64

	among, except map[string]bool
	gpus          map[string]bool
	pool, ready   sym
	labels        []label
	models        []match // by symbol, of servers and GPUs; filled as they are met
	gpuModels     []match
	caps          []capacity
	unknown       []string // names that the view does not have
}

// capacity is how many servers of a choice one feed or rack may have.
type capacity struct {
	over Over
	max  int
}

func (w *Wish) plan(v *View) (*plan, error) {
	p := &plan{Wish: w, need: w.Servers, per: w.GPUsPerServer, exclusive: w.Exclusive, from: nanos(w.From), until: ends(w.Until), risk: w.MaxRisk}
	for _, n := range []struct {
		field string
		bad   bool
		why   string
	}{
		{"servers", w.Servers < 0, "is negative"},
		{"gpus", w.GPUs < 0, "is negative"},
		{"gpus_per_server", w.GPUsPerServer < 0 || w.GPUsPerServer > maxGPUs, fmt.Sprintf("is not from 0 to %d", maxGPUs)},
		{"gpus", w.GPUs > 0 && w.Servers > 0, "stands beside servers: ask for one of them, with gpus_per_server"},
		{"gpus", w.Servers+w.GPUs+len(w.ServerNames)+len(w.GPUNames) == 0, "is 0, and no server is asked for"},
		{"gpu_names", len(w.GPUNames) > 0 && w.Servers+w.GPUs+w.GPUsPerServer+len(w.ServerNames) > 0, "stands beside numbers or servers"},
		{"gpu_names", len(w.GPUNames) > 0 && w.Exclusive, "stands beside exclusive: name the servers"},
		{"gpus", w.GPUsPerServer > 0 && w.GPUs%w.GPUsPerServer != 0, "is no multiple of gpus_per_server"},
		{"min_memory_gb", !(w.MinMemoryGB >= 0), "is negative or no number"},
		{"min_health", w.MinHealth > Warning, "is neither ok nor warning"},
		{"max_risk", !(w.MaxRisk >= 0 && w.MaxRisk <= 1), "is not from 0 to 1"},
		{"from", w.From.IsZero(), "is missing"},
		{"until", !w.Until.IsZero() && !w.Until.After(w.From), "is not after from"},
		{"together", !slices.Contains([]Together{Anywhere, Rack, Rail, NVLink}, w.Together), "is not rack, rail or nvlink"},
		{"spread", len(w.Spread) > 0 && w.GPUs > 0 && w.GPUsPerServer == 0, "of GPUs needs gpus_per_server"},
	} {
		if n.bad {
			return nil, &WishError{n.field, n.why}
		}
	}
	for _, g := range [...]struct{ field, glob string }{{"model", w.Model}, {"server_model", w.ServerModel}} {
		if _, err := path.Match(g.glob, ""); err != nil {
			return nil, &WishError{g.field, "is no pattern"}
		}
	}
	if p.risk == 0 {
		p.risk = DefaultMaxRisk
	}
	switch {
	case len(w.GPUNames) > 0:
		p.mode, p.gpus = named, set(w.GPUNames)
		servers, left := 0, set(w.GPUNames)
		for i := range v.rows {
			before := len(left)
			for _, g := range v.rows[i].gpus {
				delete(left, g)
			}
			if len(left) < before {
				servers++
			}
		}
		p.need = servers
		for g := range left {
			p.unknown = append(p.unknown, g)
		}
	case w.GPUs > 0 && p.per == 0:
		p.mode, p.need, p.per = split, w.GPUs, 1
	case w.GPUs > 0:
		p.mode, p.need = equal, w.GPUs/p.per
	case w.GPUsPerServer > 0 && !w.Exclusive:
		p.mode = equal
	default:
		p.mode, p.exclusive = whole, true
	}
	if len(w.ServerNames) > 0 {
		p.among = set(w.ServerNames)
		for n := range p.among {
			if _, ok := v.at[n]; !ok {
				p.unknown = append(p.unknown, n)
			}
		}
		if w.Servers+w.GPUs == 0 {
			p.need = len(p.among)
		}
	}
	slices.Sort(p.unknown)
	p.except, p.ready = set(w.Except), v.known(schemas.ServerReady)
	if w.ServerModel != "" {
		p.models = make([]match, len(v.symbols))
	}
	if w.Model != "" {
		p.gpuModels = make([]match, len(v.symbols))
	}
	if w.Pool != "" {
		p.pool = v.known(w.Pool)
	}
	for k, value := range w.Labels {
		p.labels = append(p.labels, label{v.known(k), v.known(value)})
	}
	for _, s := range w.Spread {
		if s.Over != Feeds && s.Over != Racks {
			return nil, &WishError{"spread", "is not over feeds or racks"}
		}
		if !(s.Share > 0 && s.Share <= 1) {
			return nil, &WishError{"spread", "has a share that is not above 0 and at most 1"}
		}
		// A hair more, since a third of 6 is 2.
		p.caps = append(p.caps, capacity{s.Over, max(1, int(s.Share*float64(p.need)+1e-9))})
	}
	return p, nil
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// match is whether a model is one that was asked for.
type match uint8

const (
	unmet match = iota
	no
	yes
)

// matches reports whether a model is one that was asked for.
func matches(met []match, v *View, glob string, model sym) bool {
	if met[model] == unmet {
		met[model] = no
		if ok, _ := path.Match(strings.ToLower(glob), strings.ToLower(v.symbols[model])); ok {
			met[model] = yes
		}
	}
	return met[model] == yes
}
