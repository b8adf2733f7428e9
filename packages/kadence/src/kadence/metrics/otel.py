"""Metrics for OpenTelemetry: observable instruments on a meter of yours (extra ``otel``).

    ClientInstruments(meter_provider.get_meter("my-service"), consumer, producer)

Names are those of KIP-714, by which brokers take metrics of Java clients: records-lag-max of the group
consumer-fetch-manager-metrics is ``org.apache.kafka.consumer.fetch.manager.records.lag.max``. Where a value exists
for the client and again for each topic or partition, the names of the latter contain that word
(``….fetch.manager.partition.records.lag.max``), so that a sum counts nothing twice. OpenTelemetry's own conventions
for messaging have no lag, no buffer and no rebalance; they describe single calls, which `kadence.otel` traces.
Tags become attributes. A metric that ends in -total is a counter, any other a gauge. A value that was never
measured is left out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from math import isnan

from kadence.errors import MissingDependencyError
from kadence.forked import free_lock, in_children
from kadence.metrics import Measured, MetricName

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
except ImportError as error:
    raise MissingDependencyError(
        "the OpenTelemetry adapter needs opentelemetry-api: pip install 'kadence[otel]'"
    ) from error

__all__ = ["ClientInstruments", "otel_name"]

_UNITS = (
    ("-ns-", "ns"),
    ("seconds", "s"),
    ("ratio", "1"),
    ("queue-size", "{item}"),
    ("byte-rate", "By/s"),
    ("bytes-consumed-rate", "By/s"),
    ("byte", "By"),
    ("-size-", "By"),
    ("latency-total", "ms"),
    ("-total", ""),
    ("-rate", ""),
    ("latency", "ms"),
    ("lateness", "ms"),
    ("time", "ms"),
)


class ClientInstruments:
    """Reports the metrics of consumers and producers on one meter; the attribute ``client_id`` names the client.

    It does not keep clients alive: one that is garbage collected is no longer reported. A forked child reports those
    that it has added itself.

    Args:
        meter: creates the instruments, once there is a first consumer, or a first producer.
        clients: each a `kadence.Consumer`, `kadence.AsyncConsumer`, `kadence.Producer` or `kadence.AsyncProducer`;
            `add` takes more.
    """

    def __init__(self, meter: Meter, *clients: Measured) -> None:
        self._meter = meter
        self._lock = free_lock()
        self._made: set[str] = set()
        self._begin()
        in_children(self, ClientInstruments._begin)
        for client in clients:
            self.add(client)

    def _begin(self) -> None:
        """Without clients: in a forked child they are the parent's, which reports them itself."""
        self._clients: weakref.WeakSet[Measured] = weakref.WeakSet()
        self._values: dict[str, list[Observation]] = {}
        self._observed: set[str] = set()

    def add(self, client: Measured) -> None:
        """Report this client, too. Any thread may call it."""
        with self._lock:
            self._make(client.metric_names())
            self._clients.add(client)

    def remove(self, client: Measured) -> None:
        """Stop reporting this client. Any thread may call it."""
        with self._lock:
            self._clients.discard(client)

    def _make(self, names: Iterable[MetricName]) -> None:
        meter = self._meter
        for name in names:
            key = otel_name(name)
            if key in self._made:
                continue
            self._made.add(key)
            make = meter.create_observable_counter if name.cumulative else meter.create_observable_gauge
            make(key, callbacks=[self._callback(key)], description=name.description, unit=_unit(name.name))

    def _callback(self, key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                # Each instrument asks once per collection; the second call of one of them begins the next collection.
                if not self._observed or key in self._observed:
                    self._observed.clear()
                    self._values = self._read()
                self._observed.add(key)
                return self._values.get(key, [])

        return observe

    def _read(self) -> dict[str, list[Observation]]:
        values: dict[str, list[Observation]] = {}
        for client in tuple(self._clients):
            for name, value in client.metrics().items():
                if not isnan(value):
                    attributes = {tag.replace("-", "_"): text for tag, text in name.tags.items()}
                    values.setdefault(otel_name(name), []).append(Observation(value, attributes))
        return values


def otel_name(name: MetricName) -> str:
    """KIP-714's name of a metric, with "topic" or "partition" in it if it is measured for each."""
    prefix = "" if name.group.startswith("kadence-") else "org.apache.kafka."
    level = f".{name.level}" if name.level else ""
    return f"{prefix}{name.group.removesuffix('-metrics')}{level}.{name.name}".replace("-", ".")


def _unit(name: str) -> str:
    return next((unit for part, unit in _UNITS if part in name), "")
