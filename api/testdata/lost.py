"""Asks for what is done, and whose answers are lost on the way."""

import os

from auspex import Client, Problem

auspex = Client(os.environ["URL"], os.environ["TOKEN"])
team = auspex.create_team({"name": "from-python"})
assert team["name"] == "from-python", team
edge = auspex.decide_edge_proposal("e-2", {"decision": "declined", "reason": "chance"})
assert edge["state"] == "declined", edge
try:
    auspex.decide_edge_proposal("e-2", {"decision": "declined", "reason": "chance"})
except Problem as p:
    assert p.status == 409 and p.code == "decided", p
else:
    raise AssertionError("declined twice")
