package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Force is the parameter of a request that ends what runs on a server all the same.
const Force = "force"

// Optional is the parameter of a drain, uncordon or validate that is asked for: where there is no way to do it here, or somebody else
// keeps the server out, nothing is left to do.
const Optional = "optional"

// Reset is the parameter of set_bios that has the server restarted, so that what is set is in force.
const Reset = "reset"

// Defaults is the parameter of set_bios that sets each attribute to what the controller's registry has as its default, but for those
// that are named.
const Defaults = "defaults"

// The parameters of update_firmware.
const (
	Component = "component" // its id or name in the firmware inventory, or a part of them
	Version   = "version"   // that it has afterwards
	Image     = "image"     // URL
	Digest    = "sha256"    // of the image, in hex
)

// The parameters of install, beside Version, which is a number here and the latest where it is not given.
const (
	Template = "template"    // its name
	given    = "parameters." // before the name of each parameter of the template
)

// Parameters are those of a template among the parameters of install and reinstall, by their names there.
func Parameters(with map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range with {
		if name, ok := strings.CutPrefix(key, given); ok {
			out[name] = value
		}
	}
	return out
}

// within is how long what was asked for may take; other kinds have a usual time.
var within = map[string]time.Duration{
	"power_on": 5 * time.Minute, "reset_network": 5 * time.Minute, "set_boot": 2 * time.Minute, "uncordon": 2 * time.Minute, "reboot": 20 * time.Minute,
	"reload_driver": 20 * time.Minute, "drain": 30 * time.Minute, "quarantine": 30 * time.Minute, kindValidate: 3 * time.Hour,
	kindSetBIOS: 20 * time.Minute, kindUpdate: time.Hour, kindACCycle: 20 * time.Minute, kindResetBMC: 15 * time.Minute,
	kindInstall: 2 * time.Hour, kindReinstall: 2 * time.Hour, kindWipe: 2 * time.Hour,
}

const usual = 10 * time.Minute

// Asked is the ladder of one rung that is climbed for a request, with its parameters: its effect
// alone is verified.
func Asked(kind string, with map[string]string) Policy {
	r := Rung{Kind: kind, Attempts: 1, Verify: usual, With: With{values: with}}
	if t, ok := within[kind]; ok {
		r.Verify = t
	}
	// Neither an installation nor a wipe that is asked for is one of a repair: neither the rate of those nor a cool-down before the next counts it.
	r.Destructive = r.EndsWhatRuns() && kind != kindInstall && kind != kindWipe
	return Policy{Name: "request", Ladder: []Rung{r}}
}

// Reads reports whether a kind of step changes nothing on a server.
func Reads(kind string) bool { return kind == kindValidate }

// CheckAsked says what speaks against the parameters of a request. What ends the work on
// a server takes force beside its own.
func CheckAsked(kind string, with map[string]string) error {
	own := maps.Clone(with)
	if force, ok := own[Force]; ok && slices.Contains(ends, kind) {
		if err := truth(force); err != nil {
			return fmt.Errorf("%s: %w", Force, err)
		}
		delete(own, Force)
	}
	if optional, ok := own[Optional]; ok && (kind == kindDrain || kind == kindUncordon || kind == kindValidate) {
		if err := truth(optional); err != nil {
			return fmt.Errorf("%s: %w", Optional, err)
		}
		delete(own, Optional)
	}
	if own[Watts] == "" && kind == KindCap {
		return fmt.Errorf("it needs %s, what the server may draw", Watts)
	}
	return errors.Join((&With{values: own}).check(kind)...)
}
