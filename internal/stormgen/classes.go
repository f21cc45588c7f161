package stormgen

import "slices"

// Class is a kind of mistake that a correlator may make, and what brings it out.
type Class struct {
	Name    string
	Profile Profile
	only    []string // scenarios; none: all of the profile
}

// Of returns the scenarios of a half; none are all of the profile.
func (c *Class) Of(h Half) (out []string) {
	for _, s := range Scenarios() {
		if slices.Contains(c.only, s.Name) && h.takes(s.Held) {
			out = append(out, s.Name)
		}
	}
	return out
}

// Has tells whether a class counts a scenario that was played in a profile.
func (c *Class) Has(scenario, profile string) bool {
	if c.only == nil {
		return profile == string(c.Profile)
	}
	return slices.Contains(c.only, scenario)
}

// Classes returns the kinds of mistakes, each with scenarios in both halves.
func Classes() []Class {
	return []Class{
		{"a part is blamed that said nothing", Easy, []string{
			"memory module fails", "server panics", "supply fails", "server freezes", "processor fails",
		}},
		{"a chain is cut", Chain, []string{
			"air unit fails, servers shut down hot", "feed trips, a worn supply follows", "memory module fails",
			"supply fails, server goes down", "processor fails", "memory module wears out and fails",
		}},
		{"a network fault is booked to its victims", Big, []string{
			"leaf dies", "management switch dies", "spine dies", "leaf restarts",
		}},
		{"weak signs alone are not told", Easy, []string{"GPU runs hot", "GPU's cold plate is blocked"}},
		{"the same root again", Big, []string{"feed trips again while it is mended", "air unit fails again while it is mended"}},
		{"of two faults in one place the larger swallows the smaller", Overlap, nil},
		{"a job hides what stalled it", Jobs, nil},
		{"one of equals is named", Easy, []string{
			"NVSwitch fails", "cable to a server breaks", "cable flaps", "cable between switches breaks", "optics fade",
		}},
		{"what is told is surer than it is right", Easy, nil},
	}
}
