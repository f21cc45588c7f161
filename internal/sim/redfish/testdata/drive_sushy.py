"""Drives a Redfish service with the client sushy: URL, user and password are arguments."""
import sys

import sushy
from sushy import auth

url, user, password = sys.argv[1:]
for how in (auth.SessionAuth(user, password), auth.BasicAuth(user, password)):
    root = sushy.Sushy(url, auth=how)
    system = root.get_system()
    assert system.power_state == sushy.PowerState.ON, system.power_state
    assert sushy.ResetType.FORCE_OFF in system.get_allowed_reset_system_values()
    system.reset_system(sushy.ResetType.FORCE_OFF)
    system.refresh(force=True)
    assert system.power_state == sushy.PowerState.OFF, system.power_state
    system.reset_system(sushy.ResetType.ON)
    system.refresh(force=True)
    assert system.power_state == sushy.PowerState.ON, system.power_state
    system.set_system_boot_options(
        sushy.BootSource.PXE,
        enabled=sushy.BootSourceOverrideEnabled.ONCE,
        mode=sushy.BootSourceOverrideMode.UEFI,
    )
    system.refresh(force=True)
    assert system.boot.target == sushy.BootSource.PXE, system.boot
    assert {p.identity for p in system.processors.get_members()} >= {"GPU_0", "GPU_1"}
    assert len(system.ethernet_interfaces.summary) == 1
    board = root.get_chassis("/redfish/v1/Chassis/Chassis_0")
    assert [t.name for t in board.thermal.temperatures][0] == "Inlet Temp"
    assert len(board.thermal.fans) == 1 and len(board.power.power_supplies) == 1
    assert root.get_manager().firmware_version == "1.0"
    assert len(root.get_update_service().firmware_inventory.get_members()) == 1
    try:
        root.get_system("/redfish/v1/Systems/none")
        raise SystemExit("a system that does not exist was found")
    except sushy.exceptions.ResourceNotFoundError:
        pass
try:
    sushy.Sushy(url, auth=auth.BasicAuth(user, "wrong")).get_system()
    raise SystemExit("a wrong password was accepted")
except sushy.exceptions.AccessError:
    pass
