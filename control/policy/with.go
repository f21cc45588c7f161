package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"auspex/internal/nearest"
)

// With are the parameters of a rung, as they were written.
type With struct {
	values map[string]string
	lines  map[string]int // of the file
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (w *With) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: with is parameters and their values, as {power_limit: 500}", n.Line)
	}
	w.values, w.lines = map[string]string{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: %s has a value that is none", value.Line, key.Value)
		}
		if _, dup := w.values[key.Value]; dup {
			return fmt.Errorf("line %d: %s is there twice", key.Line, key.Value)
		}
		w.values[key.Value], w.lines[key.Value] = value.Value, key.Line
	}
	return nil
}

// Values returns the parameters by name.
func (w *With) Values() map[string]string { return maps.Clone(w.values) }

// parameters are those that the kinds of rungs take, and what speaks against a value.
var parameters = map[string]map[string]func(value string) error{
	kindConfigure: {
		"power_limit": watts, "application_clocks": clocks, "ecc": truth, "persistence": truth, "mig": truth,
	},
	kindValidate: {"level": level},
	kindPowerOff: {Force: truth},
	KindCap:      {Watts: wholeWatts},
	kindSetBoot:  {"target": device},
	kindSetBIOS:  {Reset: truth, Defaults: truth},
	kindUpdate:   {Component: word, Version: word, Image: word, Digest: digest},
	// Beside those of the template, each with parameters. before its name.
	kindInstall: {Template: word, Version: ordinal}, kindWipe: {Template: word, Version: ordinal}, kindReinstall: {},
}

// open reports whether a kind takes a parameter whose name only the peer knows.
func open(kind, name string) bool {
	switch kind {
	case kindSetBIOS: // an attribute
		return name != Force
	case kindInstall, kindReinstall, kindWipe:
		return len(name) > len(given) && strings.HasPrefix(name, given)
	}
	return false
}

// BootTargets are what a server can be told to boot from once; none is what it is set to.
var BootTargets = []string{"pxe", "disk", "bios", "none"}

func device(value string) error {
	if !slices.Contains(BootTargets, value) {
		return fmt.Errorf("%q is none of %s", value, strings.Join(BootTargets, ", "))
	}
	return nil
}

// check says what speaks against the parameters of a kind.
func (w *With) check(kind string) (errs []error) {
	takes := parameters[kind]
	for _, name := range slices.Sorted(maps.Keys(w.values)) {
		valid, known := takes[name]
		if !known && open(kind, name) {
			valid, known = attribute, true
		}
		var err error
		switch {
		case len(takes) == 0 && !known && kind == kindReinstall:
			err = fmt.Errorf("unknown parameter %q; it takes those of its template, as parameters.NAME", name)
		case len(takes) == 0 && !known:
			err = errors.New("it takes no parameters")
		case !known:
			err = fmt.Errorf("unknown parameter %q; it takes %s", name, strings.Join(slices.Sorted(maps.Keys(takes)), ", "))
			if near := nearest.Words(name, maps.Keys(takes), 1); len(near) > 0 {
				err = fmt.Errorf("unknown parameter %q; the nearest known is %s", name, near[0])
			}
		default:
			if err = valid(w.values[name]); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		if line := w.lines[name]; err != nil && line > 0 {
			err = fmt.Errorf("line %d: %w", line, err)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if _, ok := w.values["target"]; kind == kindSetBoot && !ok {
		errs = append(errs, errors.New("it needs a target, as with: {target: pxe}"))
	}
	if kind == kindSetBIOS && len(Attributes(w.values)) == 0 && w.values[Defaults] != "true" {
		errs = append(errs, errors.New("it needs attributes, as with: {BootMode: Uefi}"))
	}
	if kind == kindUpdate {
		for _, name := range []string{Component, Version, Image, Digest} {
			if _, ok := w.values[name]; !ok {
				errs = append(errs, fmt.Errorf("it needs %s: component, version, image (a URL) and sha256 (its digest)", name))
			}
		}
	}
	if _, ok := w.values[Template]; (kind == kindInstall || kind == kindWipe) && !ok {
		errs = append(errs, errors.New("it needs a template, as with: {template: ubuntu, version: 3}"))
	}
	if kind == kindConfigure && len(w.values) == 0 {
		errs = append(errs, errors.New("it needs settings, as with: {power_limit: 500}"))
	}
	return errs
}

// Attributes are the BIOS attributes among the parameters of set_bios.
func Attributes(with map[string]string) map[string]string {
	out := maps.Clone(with)
	delete(out, Reset)
	delete(out, Defaults)
	delete(out, Force)
	return out
}

func word(value string) error {
	if value == "" {
		return errors.New("it is empty")
	}
	return attribute(value)
}

func ordinal(value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1 {
		return fmt.Errorf("%q is no version: a number from 1", value)
	}
	return nil
}

func digest(value string) error {
	if b, err := hex.DecodeString(value); err != nil || len(b) != sha256.Size {
		return fmt.Errorf("%q is no SHA-256 digest: 64 hexadecimal digits", value)
	}
	return nil
}

func attribute(value string) error {
	const most = 1024
	if len(value) > most {
		return fmt.Errorf("it is longer than %d bytes", most)
	}
	return nil
}

func watts(value string) error {
	if w, err := strconv.ParseFloat(value, 64); err != nil || !(w > 0 && w < 1e5) {
		return fmt.Errorf("%q is no number of watts", value)
	}
	return nil
}

func wholeWatts(value string) error {
	if w, err := strconv.ParseUint(value, 10, 16); err != nil || w == 0 {
		return fmt.Errorf("%q is no whole number of watts, 1 to 65535", value)
	}
	return nil
}

func clocks(value string) error {
	memory, sm, ok := strings.Cut(value, ",")
	_, err1 := strconv.ParseUint(memory, 10, 32)
	_, err2 := strconv.ParseUint(sm, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return fmt.Errorf("%q is no pair of clocks in MHz, memory and SM, as 2619,1980", value)
	}
	return nil
}

func truth(value string) error {
	if value != "true" && value != "false" {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return nil
}

func level(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n < 1 || n > 3 {
		return fmt.Errorf("%q is none of 1 to 3", value)
	}
	return nil
}
