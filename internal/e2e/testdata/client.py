"""Allocates with the Python client: asks, follows, reads all pages, is refused, gives back."""

import os

from auspex import Client, Problem

auspex = Client(os.environ["URL"], os.environ["TOKEN"])
made = auspex.create_allocation({"server_id": "gpu-r01-02", "purpose": "from Python"})
assert "allocation" in made
given = auspex.iter_allocations(live=True, limit=1)
mine = next(a for a in given if a["purpose"] == "from Python")
assert mine["servers"] == ["gpu-r01-02"], mine
status = auspex.get_allocation_status(mine["id"])
assert status["status"] in ("pending", "active"), status
names = [s["name"] for s in auspex.iter_servers(limit=1)]
assert names == ["gpu-r01-01", "gpu-r01-02", "gpu-r02-01", "gpu-r02-02"], names
try:
    auspex.create_allocation({"gpu_ids": ["gpu-r01-02/gpu0"]})
except Problem as p:
    assert p.status == 409 and p.code == "taken", p
else:
    raise AssertionError("given twice")
try:
    auspex.get_allocation("nobody's")
except Problem as p:
    assert p.status == 404 and p.code == "not_found", p
else:
    raise AssertionError("it is there")
ended = auspex.stop_allocation(mine["id"])
assert ended["status"] in ("failed", "completed"), ended
print("released", ended["id"])
