"""Java classes that log in to a cloud's Kafka: which they are, and what takes their place here.

Jobs that ran on the Java client name them in their settings. Neither login is a part of Kafka, and each needs its
cloud's own library for Python, so Kadence has an example of each and no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["advice", "of_class", "of_login_module"]


def _instead(cloud: str, java: str, module: str, leave_out: str) -> str:
    return (
        f"{java} logs in to {cloud} with Java's client. Here set sasl.mechanism=OAUTHBEARER and "
        f"sasl.oauthbearer.token.provider={module}:token, with examples/logins/{module}.py as the module {module} "
        f"wherever a client runs, and leave out {leave_out} (docs/security.md has the steps)"
    )


_MSK: Final = _instead(
    "Amazon MSK",
    "aws-msk-iam-auth (AWS_MSK_IAM, IAMLoginModule, IAMClientCallbackHandler, IAMOAuthBearerLoginCallbackHandler)",
    "amazon_msk",
    "sasl.jaas.config and the callback handler",
)
_GOOGLE: Final = _instead(
    "Google's Managed Service for Apache Kafka",
    "GcpLoginCallbackHandler",
    "google_kafka",
    "sasl.login.callback.handler.class",
)

_CLASSES: Final[Mapping[str, str]] = {
    "IAMClientCallbackHandler": _MSK,
    "IAMOAuthBearerLoginCallbackHandler": _MSK,
    "GcpLoginCallbackHandler": _GOOGLE,
}

_HANDLERS: Final = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")


def of_class(name: str) -> str | None:
    """What to do in place of a callback handler; None for one that is not known."""
    return _CLASSES.get(name.rpartition(".")[2])


def of_login_module(name: str) -> str | None:
    """What to do in place of a JAAS login module; None for one that is not known."""
    return _MSK if name == "IAMLoginModule" else None


def advice(key: str, value: object) -> str | None:
    """What to say of a setting that is such a login of Java's; None for any other."""
    if key == "sasl.mechanism" and str(value).upper() == "AWS_MSK_IAM":
        return _MSK
    return of_class(value) if key in _HANDLERS and isinstance(value, str) else None
