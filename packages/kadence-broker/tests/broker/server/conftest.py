"""Certificates, and the client settings that fit a secured broker."""

from __future__ import annotations

import base64
import json
import time

from tests.net.conftest import Certificates, certificates

__all__ = ["PASSWORD", "Certificates", "certificates", "unsecured_jwt"]

PASSWORD = "correct-horse"


def unsecured_jwt(user: str = "alice", seconds: float = 3_600) -> str:
    """A token that Kafka's default validator takes."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now - 1, 'exp': now + seconds})}."
