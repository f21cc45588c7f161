"""Auspex over its REST API: every route is a method, and what it takes and answers has a type.

    auspex = Client("https://auspex.example", token)
    made = auspex.create_allocation({"wish": {"servers": 2, "together": "rack"}, "purpose": "fine-tuning"})
    for server in auspex.iter_servers(status="ready"):
        print(server["name"])
"""

from .api import Api as Client
from .transport import Problem

__all__ = ["Client", "Problem"]
