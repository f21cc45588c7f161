package schemas

// Recommendations returns what an incident may recommend (formats, section 5).
func Recommendations() []string {
	return []string{
		"observe", "notify_owner", "cap_power", "cordon", "drain", "reset_gpu", "reload_driver", "restart_service", "reboot", "power_cycle",
		"ac_cycle", "reset_bmc", "reinstall", "replace", "inspect_feed", "inspect_cooling", "inspect_cable", "clean_optics", "quarantine",
		"ticket",
	}
}
