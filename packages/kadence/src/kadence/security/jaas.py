"""``sasl.jaas.config``, Java's way to write credentials down, so that settings of Java and Spark carry over.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

One login module, a control flag, options, a semicolon; values may be quoted. Errors never show a value.

The settings may also name Java classes that log in to a cloud's Kafka. None of these is a part of Kafka, and each
needs its cloud's own library for Python, so Kadence has an example of each (examples/logins) and no code; errors say
what takes their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kadence.errors import ConfigError
from kadence.lazy_dataclasses import dataclass, field

__all__ = ["LoginModule", "advice", "of_class", "of_login_module", "parse"]

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
  | "(?P<double> (?:[^"\\\n] | \\.)* )"
  | '(?P<single> (?:[^'\\\n] | \\.)* )'
  | (?P<mark> [=;] )
  | (?P<word> [^\s=;"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module: the last part of its class name, and its options, which may be secret."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse(text: str) -> LoginModule:
    """Read one login module.

    Raises:
        ConfigError: it is not written as Java writes it.
    """
    tokens = list(_tokens(text))
    try:
        module, flag, *rest = tokens
    except ValueError:
        raise _bad("it is too short") from None
    if module in ("=", ";") or flag.lower() not in _FLAGS:
        raise _bad(f"the login module's class is followed by one of {', '.join(_FLAGS)}")
    if ";" not in rest:
        raise _bad("it ends with a semicolon")
    end = rest.index(";")
    if rest[end + 1 :]:
        raise _bad("only one login module is allowed, ended by the one semicolon")
    options: dict[str, str] = {}
    parts = rest[:end]
    for place in range(0, len(parts), 3):
        name, equals, value = (*parts[place : place + 3], "", "")[:3]
        if equals != "=" or value == "=" or place + 2 >= len(parts):
            raise _bad('options are name="value"')
        options[str(name)] = str(value)
    return LoginModule(module.rpartition(".")[2], options)


class _Quoted(str):
    """A value in quotes, which is never a mark."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Quoted) and str.__eq__(self, other)


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _bad("a quote is not closed")
        place = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            yield _Quoted(
                re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), quoted, flags=re.DOTALL)
            )
        elif match["space"] is None:
            yield match[0]


def _bad(what: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {what}; e.g. org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="…" password="…";',
        key="sasl.jaas.config",
    )


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
    """The advice for a callback handler; None for an unknown one."""
    return _CLASSES.get(name.rpartition(".")[2])


def of_login_module(name: str) -> str | None:
    """The advice for a JAAS login module; None for an unknown one."""
    return _MSK if name == "IAMLoginModule" else None


def advice(key: str, value: object) -> str | None:
    """The advice for a setting that is such a login of Java's; None for any other."""
    if key == "sasl.mechanism" and str(value).upper() == "AWS_MSK_IAM":
        return _MSK
    return of_class(value) if key in _HANDLERS and isinstance(value, str) else None
