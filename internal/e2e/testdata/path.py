"""The end of an allocation by the Python client: what is ill is seen, another is offered, and all is given back."""

import os
import time

from auspex import Client

auspex = Client(os.environ["URL"], os.environ["TOKEN"])
mine, ill = os.environ["ALLOCATION"], os.environ["ILL"]
end = time.monotonic() + 120
while True:
    status = auspex.get_allocation_status(mine)
    named = [i for i in auspex.iter_incidents(status="open") if i["root_cause"]["resource"] == ill]
    offered = status.get("replacement", [])
    if offered and named:
        break
    assert time.monotonic() < end, (status, named)
    time.sleep(0.3)
assert status["status"] == "active", status
held = [s["name"] for s in status["servers"]]
assert len(held) == 2 and ill.split("/")[0] in held, held
assert len(offered) == 1 and offered[0]["server"] not in held, offered
ended = auspex.stop_allocation(mine, {"report": "a GPU is gone"})
assert ended["status"] == "completed", ended
print(named[0]["id"], offered[0]["server"])
