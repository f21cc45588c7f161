package schemas

import "slices"

// recommended are the kinds of actions that an incident may recommend, requested
// those that a person, an allocation or a workflow may ask for besides (formats,
// section 5).
var (
	recommended = []string{
		"observe", "notify_owner", "cap_power", "cordon", "drain", "reset_gpu", "reload_driver", "restart_service", "reboot", "power_cycle",
		"ac_cycle", "reset_bmc", "reinstall", "replace", "inspect_feed", "inspect_cooling", "inspect_cable", "clean_optics", "quarantine", "ticket",
	}
	requested = []string{
		"uncordon", "uncap_power", "power_on", "power_off", "nmi", "set_boot", "set_bios", "set_raid", "set_network", "reset_network", "update_firmware", "configure_gpu", "wipe", "install", "validate",
	}
)

// Recommendations returns the kinds of actions that an incident may recommend.
func Recommendations() []string { return slices.Clone(recommended) }

// ActionKinds returns all kinds of actions.
func ActionKinds() []string { return slices.Concat(recommended, requested) }
