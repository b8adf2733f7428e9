"""Metrics for Prometheus: a collector for the registries of `prometheus_client` (extra ``prometheus``).

    collector = ClientCollector(consumer, producer)
    prometheus_client.REGISTRY.register(collector)

Names keep Kafka's words: ``kafka_consumer_fetch_manager_records_lag_max`` is records-lag-max of the group
consumer-fetch-manager-metrics. Where a value exists for the client and again for each topic or partition, the names
of the latter contain that word (``…_partition_records_lag_max``), because one family has one set of labels and so
that a sum counts nothing twice. Tags become labels and descriptions help. A metric that ends in -total is a
counter, any other a gauge. A value that was never measured is left out.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from math import isnan

from kadence.errors import MissingDependencyError
from kadence.metrics import Measured, MetricName
from kadence.weak import all_of

try:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependencyError(
        "the Prometheus adapter needs prometheus_client: pip install 'kadence[prometheus]'"
    ) from error

__all__ = ["ClientCollector", "prometheus_name"]


class ClientCollector(Collector):
    """Reports the metrics of consumers and producers; the label ``client_id`` names the client.

    It does not keep clients alive: one that is garbage collected is no longer reported.

    Args:
        clients: each a `kadence.Consumer`, `kadence.AsyncConsumer`, `kadence.Producer` or `kadence.AsyncProducer`;
            `add` takes more.
    """

    def __init__(self, *clients: Measured) -> None:
        self._clients: weakref.WeakSet[Measured] = weakref.WeakSet(clients)

    def add(self, client: Measured) -> None:
        """Report this client, too. Any thread may call it."""
        self._clients.add(client)

    def remove(self, client: Measured) -> None:
        """Stop reporting this client. Any thread may call it."""
        self._clients.discard(client)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape. It sends no request to a broker."""
        families: dict[str, Metric] = {}
        for client in all_of(lambda: self._clients):
            for name, value in client.metrics().items():
                if not isnan(value):
                    family = _family(families, name)
                    family.add_metric(list(name.tags.values()), value)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry must not ask for values when the collector is registered."""
        return ()


def _family(families: dict[str, Metric], name: MetricName) -> CounterMetricFamily | GaugeMetricFamily:
    key = prometheus_name(name)
    family = families.get(key)
    if family is None:
        labels = [tag.replace("-", "_") for tag in name.tags]
        kind = CounterMetricFamily if name.cumulative else GaugeMetricFamily
        family = families[key] = kind(key, name.description, labels=labels)
    assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
    return family


def prometheus_name(name: MetricName) -> str:
    """The name of a metric in Prometheus, e.g. ``kafka_consumer_fetch_manager_records_lag_max``."""
    group = name.group.removesuffix("-metrics")
    if not group.startswith("kadence-"):
        group = f"kafka-{group}"
    level = f"-{name.level}" if name.level else ""
    return f"{group}{level}-{name.name}".replace("-", "_")
