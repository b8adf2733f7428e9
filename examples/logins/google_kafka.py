"""Log in to Google's Managed Service for Apache Kafka, in place of Java's GcpLoginCallbackHandler.

The settings of a client:

    security.protocol=SASL_SSL
    sasl.mechanism=OAUTHBEARER
    sasl.oauthbearer.token.provider=google_kafka:token

Needs ``pip install google-auth urllib3``, and this file where Python finds modules: beside your program, or in a
directory of PYTHONPATH. The credentials are Google's application default credentials of a service account: those of
the machine, of a workload identity, or of the file that GOOGLE_APPLICATION_CREDENTIALS names.
"""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC
from functools import lru_cache
from typing import Any

import google.auth
import urllib3
from google.auth.transport.urllib3 import Request

from kadence import Token

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


@lru_cache
def credentials() -> Any:
    """The credentials of this process."""
    found, _ = google.auth.default(scopes=[SCOPE])
    return found


def token() -> Token:
    """Google's access token, in the form that its brokers expect: header.claims.token, like a JWT."""
    mine = credentials()
    if not mine.valid:
        mine.refresh(Request(urllib3.PoolManager()))
    # Google's library gives this time in UTC, without a time zone.
    expires_at = mine.expiry.replace(tzinfo=UTC).timestamp()
    email = getattr(mine, "service_account_email", None)
    if not email:
        raise RuntimeError("these are not the credentials of a service account, which has an email address")
    claims = {"exp": expires_at, "iat": time.time(), "iss": "Google", "scope": "kafka", "sub": email}
    parts = (json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), mine.token)
    return Token(".".join(map(_encoded, parts)), expires_at)


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
