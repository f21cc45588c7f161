"""How requests reach an Auspex: a token, retries of what may be sent twice, refusals as exceptions."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

_TRIES = 3
_MOST = 256 << 20  # bytes of an answer


class Problem(Exception):
    """What a server says of a request that it did not do (RFC 9457)."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(document.get("code", ""))
        self.detail = str(document.get("detail", "")) or f"the server answered {status}"
        self.hint = str(document.get("hint", ""))
        self.errors: list[dict[str, str]] = list(document.get("errors", []))
        self.document = document
        super().__init__(f"{self.detail} {self.hint}".strip())


class _Stay(urllib.request.HTTPRedirectHandler):
    """An answer that leads elsewhere would take the token with it."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Transport:
    """One Auspex: url is its address with its base path; ca_file holds certificates that it is trusted by."""

    def __init__(self, url: str, token: str, *, ca_file: str | None = None, timeout: float = 60) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is not the address of an Auspex")
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._timeout = timeout
        context = ssl.create_default_context(cafile=ca_file)
        self._opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=context))

    def _do(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        if_match: str | None = None,
        once: bool = False,
    ) -> Any:
        """Send a request. once is that the route takes an Idempotency-Key: sent twice, it is done once."""
        given = {k: _text(v) for k, v in (query or {}).items() if v is not None}
        url = self._base + path + ("?" + urllib.parse.urlencode(given) if given else "")
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token}"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if if_match is not None:
            headers["If-Match"] = if_match
        if once:
            headers["Idempotency-Key"] = str(uuid.uuid4())
        again = once or method == "GET"
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1 or not again
            try:
                request = urllib.request.Request(url, data=data, headers=headers, method=method)
                with self._opener.open(request, timeout=self._timeout) as answer:
                    text = answer.read(_MOST)
                    if answer.length and len(text) < _MOST:  # of a part of it, read says nothing
                        raise http.client.IncompleteRead(text, answer.length)
                return json.loads(text) if text else None
            except urllib.error.HTTPError as e:
                document = _document(e.read(_MOST))
                at_work = once and document.get("code") == "at_work"  # the one whose connection broke
                if last or (e.code not in (502, 503) and not at_work):
                    raise Problem(e.code, document) from None
                if at_work:
                    time.sleep(1)
            except (OSError, http.client.HTTPException):  # the latter is an answer that broke off
                if last:
                    raise
            time.sleep(0.5 * (attempt + 1))
        raise AssertionError("unreachable")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(text: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:  # of a proxy it is none
        return {}
    return document if isinstance(document, dict) else {}


def _part(value: str) -> str:
    return urllib.parse.quote(value, safe="")
