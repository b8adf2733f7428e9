"""Configuration: one table, read by the clients, the error messages and the reference page.

Keys are Kafka's dotted names in a dict, or the same in snake_case as keyword arguments. Every field below
*is* its table row: name, type, default, bounds, meaning, since when. An unknown key is refused (with the
nearest known one), so is a value outside its bounds and a pair that contradicts itself: a key that is
silently ignored is worse than an error.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, cast

from kadence import security, stores
from kadence.errors import ConfigError
from kadence.secret import Secret

if TYPE_CHECKING:
    from kadence.security import Token

__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "Key",
    "ProducerConfig",
    "Secret",
    "generated_client_id",
    "keys",
]

_INT32_MAX: Final = 2**31 - 1
_client_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the table.

    Attributes:
        name: Kafka's dotted name. kind: how values are read. default: None = not set.
        low, high: inclusive bounds of numbers. choices: allowed words. doc: what it means.
        since: the KIP or release that it comes from, "" for Kafka's oldest.
    """

    name: str
    kind: str
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    doc: str
    since: str


def _key(
    kind: str,
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    since: str = "",
) -> Any:
    row = Key("", kind, default, low, high, choices, doc, since)
    return field(default=default, metadata={"row": row})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client of a cluster needs."""

    bootstrap_servers: tuple[str, ...] = _key(
        "list",
        (),
        "Brokers to ask first, host:port, comma separated or a list. All their addresses are tried.",
    )
    client_id: str = _key("string", "", "A name for the brokers' logs and quotas; generated when empty.")
    request_timeout_ms: int = _key(
        "int",
        30_000,
        "How long one request may wait for its answer.",
        low=1,
        high=_INT32_MAX,
    )
    default_api_timeout_ms: int = _key(
        "int",
        60_000,
        "How long a blocking call without timeout= may take.",
        low=0,
        high=_INT32_MAX,
        since="KIP-266",
    )
    retry_backoff_ms: int = _key("int", 100, "First wait before a failed request is repeated.", low=0)
    retry_backoff_max_ms: int = _key(
        "int",
        1_000,
        "Longest such wait; it doubles each time, ±20 %.",
        low=0,
        since="KIP-580",
    )
    reconnect_backoff_ms: int = _key(
        "int", 50, "First wait before a failed connection is tried again.", low=0
    )
    reconnect_backoff_max_ms: int = _key(
        "int",
        1_000,
        "Longest such wait; it doubles each time, ±20 %.",
        low=0,
        since="KIP-144",
    )
    socket_connection_setup_timeout_ms: int = _key(
        "int",
        10_000,
        "How long a connection may take to be made.",
        low=1,
        since="KIP-601",
    )
    connections_max_idle_ms: int = _key(
        "int",
        540_000,
        "Close a connection that was not used for so long; -1 never.",
        low=-1,
    )
    metadata_max_age_ms: int = _key(
        "int", 300_000, "Refresh cluster metadata after so long, changed or not.", low=0
    )
    send_buffer_bytes: int = _key("int", 131_072, "Socket send buffer; -1 leaves it to the system.", low=-1)
    receive_buffer_bytes: int = _key(
        "int",
        -1,
        "Socket receive buffer; -1 leaves it to the system, which tunes it (measured faster than any fixed size).",
        low=-1,
    )
    security_protocol: str = _key(
        "choice",
        "PLAINTEXT",
        "How to talk to brokers.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    sasl_mechanism: str | None = _key(
        "choice",
        None,
        "How to authenticate with SASL_PLAINTEXT and SASL_SSL.",
        choices=security.MECHANISMS,
    )
    sasl_username: str | None = _key("string", None, "User of PLAIN and SCRAM.")
    sasl_password: Secret | None = _key("password", None, "Password of PLAIN and SCRAM.")
    sasl_jaas_config: Secret | None = _key(
        "password",
        None,
        "The credentials as Java writes them: PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule.",
        since="KIP-85",
    )
    sasl_login_callback_handler_class: str | None = _key(
        "string", None, "Accepted where it names Java's OAuthBearerLoginCallbackHandler, which is built in."
    )
    sasl_oauthbearer_token_provider: Callable[[], Token] | None = _key(
        "callable",
        None,
        "Called without arguments, on a helper thread, for each new token; returns kadence.Token.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = _key(
        "string",
        None,
        "Where to get tokens by OAuth client credentials (https).",
        since="KIP-768",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = _key(
        "string", None, "The client's id there.", since="KIP-1139"
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = _key(
        "password", None, "The client's secret there.", since="KIP-1139"
    )
    sasl_oauthbearer_scope: str | None = _key("string", None, "The scope to ask for.", since="KIP-1139")
    sasl_oauthbearer_header_urlencode: bool | None = _key(
        "bool",
        None,
        "URL-encode id and secret, as RFC 6749 has it; Java's default is not to.",
        since="KIP-1025",
    )
    ssl_ca_location: str | None = _key(
        "string",
        None,
        "PEM file of the authorities to trust; the system's when not set.",
    )
    ssl_certificate_location: str | None = _key("string", None, "PEM file of the client certificate chain.")
    ssl_key_location: str | None = _key("string", None, "PEM file of the client's private key.")
    ssl_key_password: Secret | None = _key("password", None, "Password of the private key.")
    ssl_truststore_type: str | None = _key(
        "string", None, "Kind of Java's trust store; only PEM can be read."
    )
    ssl_truststore_location: str | None = _key("string", None, "As ssl.ca.location, where the type is PEM.")
    ssl_truststore_certificates: str | None = _key(
        "string", None, "The authorities to trust as PEM text.", since="KIP-651"
    )
    ssl_keystore_type: str | None = _key("string", None, "Kind of Java's key store; only PEM can be read.")
    ssl_keystore_location: str | None = _key(
        "string", None, "PEM file of the client's private key and certificate chain, where the type is PEM."
    )
    ssl_keystore_key: Secret | None = _key(
        "password", None, "The client's private key as PEM text.", since="KIP-651"
    )
    ssl_keystore_certificate_chain: str | None = _key(
        "string", None, "The client certificate chain as PEM text.", since="KIP-651"
    )
    ssl_endpoint_identification_algorithm: str = _key(
        "choice",
        "https",
        "Check that the certificate names the host; empty switches it off.",
        choices=("https", ""),
    )

    @classmethod
    def parse(cls, config: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        """Read dotted keys from ``config`` and snake_case ones from keywords.

        Raises:
            ConfigError: unknown key (with the nearest known one), a value of the wrong type or outside its
                bounds, the same key given both ways, or values that contradict each other.
        """
        rows = {row.name: row for row in keys(cls)}
        given: dict[str, Any] = {}
        for name, value in (config or {}).items():
            if not isinstance(name, str):
                raise ConfigError(f"configuration keys are strings such as 'bootstrap.servers', not {name!r}")
            given[name.replace("_", ".") if name not in rows else name] = value
        for name, value in settings.items():
            dotted = name.replace("_", ".")
            if dotted in given:
                raise ConfigError(f"{dotted} is given twice: in the dict and as {name}=")
            given[dotted] = value
        for name in given:
            if name not in rows:
                raise ConfigError(stores.advice(name, given) or _unknown(name, cls, rows))
        values = {name.replace(".", "_"): _read(rows[name], value) for name, value in given.items()}
        result = cls(**values)
        result._check(frozenset(given))
        return result

    def _check(self, given: frozenset[str]) -> None:
        """Contradictions between keys."""
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is required, e.g. bootstrap_servers='localhost:9092'")
        for address in self.bootstrap_servers:
            host, colon, port = address.rpartition(":")
            if not (colon and host and port.isdigit() and 0 < int(port) < 65536):
                raise ConfigError(f"bootstrap.servers: {address!r} is not host:port, e.g. 'localhost:9092'")
        if self.retry_backoff_ms > self.retry_backoff_max_ms and "retry.backoff.max.ms" in given:
            raise ConfigError("retry.backoff.ms is above retry.backoff.max.ms")
        stores.check(self)
        security.check(self, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The consumer's keys."""

    group_id: str | None = _key(
        "string",
        None,
        "The consumer group; needed for subscribe() and committed offsets.",
    )
    group_instance_id: str | None = _key(
        "string",
        None,
        "Static membership: a name that survives restarts of this process.",
        since="KIP-345",
    )
    group_protocol: str = _key(
        "choice",
        "auto",
        "How the group rebalances: classic (members assign), consumer (the broker does; Kafka 4.0 or newer) or auto: "
        "consumer where the broker has it, no key of classic is set and the group has no classic members.",
        choices=("auto", "classic", "consumer"),
        since="KIP-848",
    )
    group_remote_assignor: str | None = _key(
        "string",
        None,
        "The broker's assignor to ask for, uniform or range, with group.protocol=consumer; the broker's choice "
        "when not set.",
        since="KIP-848",
    )
    session_timeout_ms: int = _key(
        "int",
        10_000,
        "A process that sends no heartbeat for so long is dead (B1).",
        low=1,
        high=_INT32_MAX,
        since="KIP-62",
    )
    heartbeat_interval_ms: int = _key(
        "int",
        3_000,
        "How often the network thread sends a heartbeat.",
        low=1,
        high=_INT32_MAX,
        since="KIP-62",
    )
    max_poll_interval_ms: int = _key(
        "int",
        300_000,
        "A process that does not poll for so long makes no progress (B1); it leaves the group.",
        low=1,
        high=_INT32_MAX,
        since="KIP-62",
    )
    max_poll_records: int = _key(
        "int",
        500,
        "Most records one poll() returns; -1 = no cap (A1).",
        low=-1,
        since="KIP-41",
    )
    partition_assignment_strategy: tuple[str, ...] = _key(
        "list",
        ("cooperative-sticky",),
        "Assignors of the classic protocol, in order of preference: range, cooperative-sticky.",
    )
    enable_auto_commit: bool = _key(
        "bool",
        True,
        "Commit by itself what a later poll has proved processed. Without group.id there is nothing to commit.",
    )
    auto_commit_interval_ms: int = _key("int", 5_000, "How often it does.", low=0)
    auto_offset_reset: str = _key(
        "choice",
        "latest",
        "Where to start without a committed offset.",
        choices=("earliest", "latest", "none"),
    )
    allow_auto_create_topics: bool = _key(
        "bool", False, "Whether asking for a topic may create it on the broker."
    )
    exclude_internal_topics: bool = _key("bool", True, "Whether a pattern skips Kafka's own topics.")
    isolation_level: str = _key(
        "choice",
        "read_uncommitted",
        "Whether records of open and aborted transactions are seen.",
        choices=("read_uncommitted", "read_committed"),
        since="KIP-98",
    )
    fetch_min_bytes: int = _key("int", 1, "The broker waits for so much data, or fetch.max.wait.ms.", low=0)
    fetch_max_wait_ms: int = _key("int", 500, "Longest such wait.", low=0)
    fetch_max_bytes: int = _key(
        "int",
        52_428_800,
        "Most bytes of one fetch response (its first batch may be larger).",
        low=1,
    )
    max_partition_fetch_bytes: int = _key("int", 1_048_576, "Most bytes of one partition in it.", low=1)
    buffer_memory: int = _key(
        "int",
        134_217_728,
        "Hard cap on bytes held: fetched, decompressed and retained (A3).",
        low=1_048_576,
        since="KIP-81",
    )
    max_batch_bytes: int = _key(
        "int",
        268_435_456,
        "A batch that decompresses to more is refused, before the memory is spent.",
        low=1,
    )
    check_crcs: bool = _key("bool", True, "Verify the checksum of each batch.")
    client_rack: str = _key(
        "string",
        "",
        "Where this client runs, to read from a near replica.",
        since="KIP-392",
    )

    @property
    def processing_timeout_ms(self) -> int:
        """The effective processing timeout, which is also the rebalance timeout (B2)."""
        if self.group_protocol == "consumer":
            return self.max_poll_interval_ms  # the session is the broker's
        return max(self.session_timeout_ms, self.max_poll_interval_ms)

    @property
    def auto_commit(self) -> bool:
        """Whether there is anything to commit by itself."""
        return self.enable_auto_commit and self.group_id is not None

    def _check(self, given: frozenset[str]) -> None:
        ClientConfig._check(self, given)
        self._check_protocol(given)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below session.timeout.ms "
                f"({self.session_timeout_ms}); a third of it is usual"
            )
        if self.max_poll_records == 0:
            raise ConfigError("max.poll.records must be at least 1, or -1 for no cap")
        if self.group_id == "":
            raise ConfigError("group.id is empty; give it a name, or leave it out to use assign()")
        if self.group_id is None and self.enable_auto_commit and "enable.auto.commit" in given:
            raise ConfigError("enable.auto.commit needs group.id: offsets are committed for a group")
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group.instance.id needs group.id")
        for name in self.partition_assignment_strategy:
            if name not in ("range", "cooperative-sticky"):
                raise ConfigError(
                    f"partition.assignment.strategy: {name!r} is none of range, cooperative-sticky"
                )
        if not self.partition_assignment_strategy:
            raise ConfigError("partition.assignment.strategy must name at least one assignor")
        if self.max_partition_fetch_bytes > self.buffer_memory:
            raise ConfigError(
                "max.partition.fetch.bytes is above buffer.memory, so no full fetch would ever fit"
            )

    def _check_protocol(self, given: frozenset[str]) -> None:
        """Each group protocol has keys that mean nothing to the other (C4)."""
        if self.group_protocol == "consumer":
            for name, instead in _CLASSIC_ONLY.items():
                if name in given:
                    raise ConfigError(
                        f"{name} is a key of the classic protocol, where the client decides; with "
                        f"group.protocol=consumer the broker does: {instead}, or set group.protocol=classic"
                    )
        elif self.group_protocol == "auto" and not given.isdisjoint(_CLASSIC_ONLY):
            object.__setattr__(self, "group_protocol", "classic")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise ConfigError(
                "group.remote.assignor needs group.protocol=consumer, and no key of the classic protocol, whose own "
                "is partition.assignment.strategy"
            )


_CLASSIC_ONLY: Final[Mapping[str, str]] = {
    "session.timeout.ms": "leave it out (group.consumer.session.timeout.ms on the broker)",
    "heartbeat.interval.ms": "leave it out (group.consumer.heartbeat.interval.ms on the broker)",
    "partition.assignment.strategy": "name a broker's assignor in group.remote.assignor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The producer's keys."""

    acks: str = _key(
        "choice",
        "all",
        "Which replicas must have a record before it counts.",
        choices=("all", "-1", "1", "0"),
    )
    enable_idempotence: bool = _key("bool", True, "Retries cannot repeat or reorder records.", since="KIP-98")
    compression_type: str = _key(
        "choice",
        "none",
        "Compression of batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    linger_ms: int = _key("int", 5, "Wait so long for more records of the same partition.", low=0)
    batch_size: int = _key("int", 131_072, "Most uncompressed bytes of one batch.", low=1)
    buffer_memory: int = _key("int", 33_554_432, "Most bytes waiting to be sent; send() blocks above.", low=1)
    max_block_ms: int = _key("int", 60_000, "How long send() may block for memory or metadata.", low=0)
    max_request_size: int = _key("int", 1_048_576, "Most bytes of one record or request.", low=1)
    delivery_timeout_ms: int = _key(
        "int",
        120_000,
        "A record fails when it is not acknowledged by then.",
        low=1,
        since="KIP-91",
    )
    max_in_flight_requests_per_connection: int = _key(
        "int", 5, "Requests sent before the first is answered.", low=1
    )

    def _check(self, given: frozenset[str]) -> None:
        ClientConfig._check(self, given)
        if self.enable_idempotence and self.acks not in ("all", "-1"):
            if "enable.idempotence" in given:
                raise ConfigError(f"enable.idempotence needs acks=all, not {self.acks}")
            object.__setattr__(self, "enable_idempotence", False)
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigError("enable.idempotence allows at most 5 max.in.flight.requests.per.connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The admin client's keys: those of every client."""


def keys(config: type[ClientConfig]) -> list[Key]:
    """The table of one client, in the order of its page."""
    return [
        dataclasses.replace(cast(Key, item.metadata["row"]), name=item.name.replace("_", "."))
        for item in dataclasses.fields(config)
    ]


def _unknown(name: str, cls: type[ClientConfig], rows: Mapping[str, Key]) -> str:
    near = difflib.get_close_matches(name, rows, n=1, cutoff=0.6)
    client = cls.__name__.removesuffix("Config").lower()
    advice = f"did you mean {near[0]!r}?" if near else "see the reference page for the known keys"
    return f"unknown {client} configuration key {name!r}: {advice}"


def _read_int(row: Key, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError  # noqa: TRY004 - as below
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError
    if not (row.low if row.low is not None else -math.inf) <= number <= (row.high or math.inf):
        raise ValueError
    return number


def _read_bool(_: Key, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _read_list(_: Key, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _read_choice(row: Key, value: Any) -> str:
    for choice in row.choices:
        if str(value).lower() == choice.lower():
            return choice
    raise ValueError


def _read_callable(_: Key, value: Any) -> Any:
    if not callable(value):
        raise ValueError  # noqa: TRY004 - as below
    return value


def _read_string(_: Key, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - told as one ConfigError with the key's name by the caller
    return value


_READERS: dict[str, Callable[[Key, Any], Any]] = {
    "int": _read_int,
    "bool": _read_bool,
    "list": _read_list,
    "choice": _read_choice,
    "string": _read_string,
    "callable": _read_callable,
    "password": lambda row, value: Secret(_read_string(row, value)),
}


def _allowed(row: Key) -> str:
    if row.choices:
        return "one of " + ", ".join(choice or "''" for choice in row.choices)
    if row.kind == "int":
        low = "" if row.low is None else f" >= {int(row.low)}"
        high = "" if row.high is None else f" and <= {int(row.high)}"
        return f"a whole number{low}{high}"
    words = {"bool": "true or false", "list": "a list, or a comma separated string", "callable": "a callable"}
    return words.get(row.kind, "a string")


def _read(row: Key, value: Any) -> Any:
    if value is None and row.default is None:
        return None
    try:
        return _READERS[row.kind](row, value)
    except (ValueError, TypeError, OverflowError):
        shown = "the given value" if row.kind == "password" else repr(value)
        raise ConfigError(f"{row.name}: {shown} is not {_allowed(row)}") from None


def generated_client_id(kind: str) -> str:
    """A client.id for a client that was given none, e.g. ``consumer-1``."""
    return f"kadence-{kind}-{next(_client_ids)}"
