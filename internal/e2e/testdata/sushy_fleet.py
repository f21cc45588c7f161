"""Drives a simulated board controller with the Redfish client sushy: URL, user, password, CA file."""
import sys
import time

import sushy
from sushy import auth

url, user, password, ca = sys.argv[1:]


def until(system, want):
    for _ in range(120):
        system.refresh(force=True)
        if system.power_state == want:
            return
        time.sleep(0.5)
    raise SystemExit(f"power is {system.power_state}, want {want}")


for how in (auth.BasicAuth(user, password), auth.SessionAuth(user, password)):
    root = sushy.Sushy(url, auth=how, verify=ca)
    system = root.get_system()
    assert system.power_state == sushy.PowerState.ON, system.power_state
    assert sushy.ResetType.FORCE_OFF in system.get_allowed_reset_system_values()
    system.set_system_boot_options(sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    system.refresh(force=True)
    assert system.boot.target == sushy.BootSource.PXE, system.boot.target
    system.reset_system(sushy.ResetType.FORCE_OFF)
    until(system, sushy.PowerState.OFF)
    system.reset_system(sushy.ResetType.ON)
    until(system, sushy.PowerState.ON)
    print(system.identity, system.manufacturer, system.model, len(system.ethernet_interfaces.get_members()), "interfaces")
