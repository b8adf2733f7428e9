"""Web services of examples/: what a test asks them."""

from __future__ import annotations

import http.client
import json
import signal
from typing import Any
from urllib.parse import urlsplit

from tests.examples.programs import Child
from tests.patience import PATIENCE

__all__ = ["address", "ended_in_order", "got", "posted", "status", "text"]


def address(service: Child) -> str:
    """Where a service listens that was started with ``PORT=0``."""
    return service.wait_for(r"running on (http://127\.0\.0\.1:\d+)")[1]


def ended_in_order(service: Child) -> bool:
    """Whether SIGTERM lets the service end its application; uvicorn then ends as the signal would have it."""
    assert service.end() == -signal.SIGTERM
    assert not any("Traceback" in line for line in service.lines), "\n".join(service.lines)
    return any("Application shutdown complete" in line for line in service.lines)


def status(url: str) -> int:
    """The status of an answer."""
    return _asked("GET", url)[0]


def got(url: str) -> Any:
    """The document at an address."""
    return json.loads(text(url))


def text(url: str) -> str:
    """What is at an address, as it is written."""
    code, found = _asked("GET", url)
    assert code == 200, found
    return found


def posted(url: str, document: object) -> Any:
    """What is answered to a document that is accepted."""
    code, found = _asked("POST", url, json.dumps(document))
    assert code == 201, found
    return json.loads(found)


def _asked(method: str, url: str, body: str | None = None) -> tuple[int, str]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=PATIENCE)
    try:
        connection.request(method, place.path, body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
