"""Metrics with Kafka's names and statistics, and adapters to other monitoring systems.

`sensors` and `network` are written by one thread each and read by any; they know no clock. The adapters
(`kadence.metrics.prometheus`, `kadence.metrics.otel`) read the public ``metrics()`` of consumers and know nothing else.
"""

from __future__ import annotations

from kadence.metrics.name import MetricName

__all__ = ["MetricName"]
