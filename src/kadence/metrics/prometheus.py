"""Metrics for Prometheus: a collector for the registries of `prometheus_client` (extra ``prometheus``).

    collector = ConsumerCollector(consumer)
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
from kadence.metrics.name import Measured, MetricName

try:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependencyError(
        "the Prometheus adapter needs prometheus_client: pip install kadence[prometheus]"
    ) from error

__all__ = ["ConsumerCollector", "prometheus_name"]


class ConsumerCollector(Collector):
    """Reports the metrics of consumers; the label ``client_id`` names the consumer.

    It does not keep consumers alive: one that is garbage collected is no longer reported.

    Args:
        consumers: each a `kadence.Consumer` or `kadence.AsyncConsumer`; `add` takes more.
    """

    def __init__(self, *consumers: Measured) -> None:
        self._consumers: weakref.WeakSet[Measured] = weakref.WeakSet(consumers)

    def add(self, consumer: Measured) -> None:
        """Report this consumer, too. Any thread may call it."""
        self._consumers.add(consumer)

    def remove(self, consumer: Measured) -> None:
        """Stop reporting this consumer. Any thread may call it."""
        self._consumers.discard(consumer)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape. It sends no request to a broker."""
        families: dict[str, Metric] = {}
        for consumer in tuple(self._consumers):
            for name, value in consumer.metrics().items():
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
