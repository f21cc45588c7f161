// Package fault plays a script of faults on the simulated fleet. A script is
// YAML; it names its targets, or describes them and leaves the choice to a seed.
package fault

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Demo is the script that `auspex run --demo` plays.
//
//go:embed demo.yaml
var Demo []byte

// Script is a list of faults with their times since the start of the simulator.
type Script struct {
	Name   string  `yaml:"name"`
	Faults []Fault `yaml:"faults"`
}

// Fault is one fault of a script. Which of the parameters a kind takes, and
// what stands for one that is missing, [Kinds] tells.
type Fault struct {
	At     time.Duration `yaml:"at"`  // since the start
	For    time.Duration `yaml:"for"` // until it is undone; 0 is never
	Kind   string        `yaml:"kind"`
	Target Target        `yaml:"target"`

	Crossing  time.Duration `yaml:"crossing"`  // fan_wear, disk_failure: until speed or spare crosses its limit
	Dead      bool          `yaml:"dead"`      // gpu_fallen_off, gpu_fails: nothing brings it back
	Contained bool          `yaml:"contained"` // ecc_ue: XID 94 and not 95
	Rate      float64       `yaml:"rate"`      // errors a second, or decibels a minute
	Times     int           `yaml:"times"`     // link_flap
	Delay     time.Duration `yaml:"delay"`     // bmc_slow, installer_slow
	Skew      time.Duration `yaml:"skew"`      // bmc_clock
	Dimm      *int          `yaml:"dimm"`      // node_crash, dimm_errors: the memory module to blame
	Code      int           `yaml:"code"`      // xid
	Text      string        `yaml:"text"`      // xid: what follows the process
	Action    int           `yaml:"action"`    // install_fails, install_hangs: which, from 1

	line int
}

// Target names what a fault hits: the id of a resource or of a job, "random", or a
// description whose missing pieces are drawn.
type Target struct {
	ID     string
	Rack   int    // from 1
	Server int    // in its rack, from 1
	Feed   string // a or b
	GPU    *int
	Fan    int
	PSU    *int
	Disk   *int
	Port   string
	Switch string
	Nodes  int // of a job
}

// UnmarshalYAML reads a name or a description.
func (t *Target) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "random" {
			t.ID = n.Value
		}
		return nil
	}
	var v struct {
		ID     string `yaml:"id"`
		Rack   int    `yaml:"rack"`
		Server int    `yaml:"server"`
		Feed   string `yaml:"feed"`
		GPU    *int   `yaml:"gpu"`
		Fan    int    `yaml:"fan"`
		PSU    *int   `yaml:"psu"`
		Disk   *int   `yaml:"disk"`
		Port   string `yaml:"port"`
		Switch string `yaml:"switch"`
		Nodes  int    `yaml:"nodes"`
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if !slices.Contains([]string{"id", "rack", "server", "feed", "gpu", "fan", "psu", "disk", "port", "switch", "nodes"}, key) {
			return fmt.Errorf(
				"line %d: a target has no key %q; it takes id, rack, server, feed, gpu, fan, psu, disk, port, switch and nodes", n.Content[i].Line, key,
			)
		}
		if n.Content[i+1].Value == "random" {
			n.Content[i+1].Value, n.Content[i+1].Tag = "", "!!null"
		}
	}
	if err := n.Decode(&v); err != nil {
		return err
	}
	*t = Target{v.ID, v.Rack, v.Server, strings.ToLower(v.Feed), v.GPU, v.Fan, v.PSU, v.Disk, v.Port, v.Switch, v.Nodes}
	return nil
}

// Kind describes a kind of fault.
type Kind struct {
	Target string // the kind of resource that it hits
	Takes  []string
	About  string
}

// Kinds returns the kinds of faults by name.
func Kinds() map[string]Kind { return maps.Clone(kinds) }

var kinds = map[string]Kind{
	"feed_loss":        {"pdu", nil, "what hangs on the PDU loses its input; for: until it is back"},
	"psu_failure":      {"psu", nil, "a power supply fails"},
	"crac_failure":     {"crac", nil, "an air handler stops; its racks get warm"},
	"fan_wear":         {"fan", []string{"crossing"}, "a bearing wears; crossing (10m): when the speed passes the lower critical threshold"},
	"fan_failure":      {"fan", nil, "a fan stops"},
	"gpu_fallen_off":   {"gpu", []string{"dead"}, "XID 79 and 154, then silence; dead: a power cycle does not help"},
	"ecc_ce":           {"gpu", []string{"rate"}, "correctable memory errors at a growing rate (0.2 a second)"},
	"ecc_ue":           {"gpu", []string{"contained"}, "XID 48, 63 and 95, or 94 where contained"},
	"gpu_hang":         {"gpu", nil, "XID 119; calls of its driver do not return, until the server restarts"},
	"driver_damaged":   {"gpu", nil, "XID 119; the files of its driver are damaged: nothing but a new installation of the server helps"},
	"install_fails":    {"server", []string{"action"}, "an installation fails; action (1): at which"},
	"install_hangs":    {"server", []string{"action"}, "the worker of an installation dies, and nobody is told; action (1): in which"},
	"wipe_fails":       {"disk", nil, "a disk that is to be erased fails to, and says so"},
	"wipe_lies":        {"disk", nil, "a disk that is to be erased says that it is, and keeps what it holds"},
	"installer_away":   {"installer", nil, "the interface of Tinkerbell does not answer"},
	"installer_denies": {"installer", nil, "the interface of Tinkerbell forbids everything"},
	"installer_slow":   {"installer", []string{"delay"}, "the interface of Tinkerbell answers late (5s)"},
	"gpu_fails":        {"gpu", []string{"dead"}, "XID 119; its driver tells nothing of it, until a reset, a reload of the driver or a restart; dead: none of them helps"},
	"memory_weak":      {"gpu", nil, "a cell of its memory does not keep what is written, which a validation finds"},
	"compute_wrong":    {"gpu", nil, "a multiprocessor computes something else, which a validation finds"},
	"reload_fails":     {"server", nil, "the driver cannot be unloaded"},
	"fabric_manager":   {"server", nil, "the fabric manager dies, and with it the jobs; GPUs that are reset then are not registered in their fabric; for: until it is started, which a restart does too"},
	"disk_failure":     {"disk", []string{"crossing"}, "a disk cannot read sectors; crossing (1m): when its spare is below the threshold"},
	"disk_lost":        {"disk", nil, "a disk is gone from its slot; for: until it is back"},
	"reset_fails":      {"gpu", nil, "a reset of the GPU fails"},
	"setting_slips":    {"gpu", nil, "the GPU does not take settings"},
	"nvlink_errors":    {"gpu", []string{"rate"}, "link errors (40 a second), XID 74 and an SXid"},
	"xid":              {"gpu", []string{"code", "text"}, "any XID"},
	"xid_unknown":      {"gpu", []string{"code", "text"}, "an XID that no catalogue has (code 999)"},
	"node_crash":       {"server", []string{"dimm"}, "the kernel panics and the host boots again; dimm: a memory module is to blame"},
	"dimm_errors":      {"server", []string{"dimm"}, "a memory module corrects too many errors; dimm: which one (0)"},
	"job_crash":        {"job", nil, "a program's fault: XID 13, 31 and 45 on all its nodes, the job fails; target nodes (8): how large a job"},
	"link_flap":        {"port", []string{"times"}, "a link goes down and up (6 times)"},
	"link_failure":     {"port", nil, "a cable is cut"},
	"optics_degraded":  {"port", []string{"rate"}, "a receiver loses power (1.5 dB a minute)"},
	"switch_failure":   {"switch", nil, "a switch dies, and its links with it"},
	"bmc_mute":         {"server", nil, "a board controller does not answer"},
	"bmc_garble":       {"server", nil, "a board controller answers with garbage"},
	"bmc_slow":         {"server", []string{"delay"}, "a board controller answers late (5s)"},
	"bmc_ignores_sets": {"server", nil, "a board controller accepts resets and does nothing"},
	"bmc_clock":        {"server", []string{"skew"}, "the clock of a board controller is off (-1h)"},
}

// Parse reads a script. Errors name the line.
func Parse(data []byte) (*Script, error) {
	var s Script
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	var doc struct {
		Faults []yaml.Node `yaml:"faults"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		node := &doc.Faults[i]
		f.line = node.Line
		var given []string
		for k := 0; k+1 < len(node.Content); k += 2 {
			given = append(given, node.Content[k].Value)
		}
		if err := f.complete(given); err != nil {
			return nil, fmt.Errorf("read script: line %d: %w", f.line, err)
		}
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return &s, nil
}

// complete checks a fault and sets what was not given.
func (f *Fault) complete(given []string) error {
	k, ok := kinds[f.Kind]
	if !ok {
		return fmt.Errorf("unknown kind of fault %q; known are %s", f.Kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	if f.At < 0 || f.For < 0 {
		return errors.New("a time is negative")
	}
	for _, g := range given {
		if !slices.Contains([]string{"at", "for", "kind", "target"}, g) && !slices.Contains(k.Takes, g) {
			return fmt.Errorf("%s takes no %q", f.Kind, g)
		}
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	rate := func(v float64) {
		if f.Rate == 0 {
			f.Rate = v
		}
	}
	switch f.Kind {
	case "fan_wear":
		set(&f.Crossing, 10*time.Minute)
	case "disk_failure":
		set(&f.Crossing, time.Minute)
	case "install_fails", "install_hangs":
		if f.Action == 0 {
			f.Action = 1
		}
	case "bmc_slow", "installer_slow":
		set(&f.Delay, 5*time.Second)
	case "bmc_clock":
		set(&f.Skew, -time.Hour)
	case "ecc_ce":
		rate(0.2)
	case "nvlink_errors":
		rate(40)
	case "optics_degraded":
		rate(1.5)
	case "link_flap":
		if f.Times == 0 {
			f.Times = 6
		}
	case "xid_unknown":
		if f.Code == 0 {
			f.Code = 999
		}
	case "xid":
		if f.Code <= 0 {
			return errors.New("xid wants a code")
		}
	}
	if f.Crossing < 0 || f.Rate < 0 || f.Times < 0 || f.Delay < 0 || f.Action < 0 {
		return errors.New("a parameter is negative")
	}
	return nil
}
