"""What schemathesis is told of Auspex beyond the document, and one check of our own."""

import json
import os
import random
import uuid

import schemathesis
import urllib3.util.connection as connection


# What there is to ask for, by the first part of a path (internal/e2e, TestTheDocumentIsHeldToItsWord).
THERE = json.loads(os.environ.get("AUSPEX_THERE", "{}"))


@schemathesis.hook
def before_call(context, case, kwargs):
    """Requests that the document allows ask in half of all cases for what is there: any other id is 404.

    An Idempotency-Key is of one request: a generator that repeats one would be answered 422 all the time.
    """
    if case.method in ("PUT", "DELETE"):
        for name, value in (case.path_parameters or {}).items():
            if value in THERE.get("caller", []):  # who must stay, and may: what they are changed to answers nothing but 401
                case.path_parameters[name] = "nobody"
    there = THERE.get(case.operation.path.split("/")[1])
    if there and case.meta is not None and case.meta.generation.mode.is_positive and random.random() < 0.5:
        for name in ("id", "name", "key"):
            if name in (case.path_parameters or {}):
                case.path_parameters[name] = random.choice(there)
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and 0 < len(key) <= 200:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())


@schemathesis.check
def refusal_names_the_field(ctx, response, case):
    """A bad request is a problem document that says which parameter or field is at fault."""
    if response.status_code != 400:
        return
    errors = response.json().get("errors") or []
    assert errors, "400 names no field"
    for e in errors:
        assert e["in"] in ("body", "query", "path", "header") and e["detail"], f"400 says nothing of {e}"


# Failures to log in slow their source address. The check ignored_auth fails on purpose, on every route: each of its
# connections comes from an address of its own (all of 127.0.0.0/8 is this machine's on Linux).
_connect = connection.create_connection


def _from_somewhere(address, *args, **kwargs):
    if address[0].startswith("127."):
        kwargs["source_address"] = (f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}", 0)
    return _connect(address, *args, **kwargs)


connection.create_connection = _from_somewhere
