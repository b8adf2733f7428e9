"""Which process of a run takes which tests, and in what order.

A file stays in one process, since it shares brokers. Files that start Spark share one process, which so starts it
once and one after the other: three at a time would leave the other tests no processor. What takes longest begins
first, so that no process is left alone with it at the end.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

__all__ = ["by_length", "scheduler"]

_HEAVY: Final = (
    "tests/spark/test_spark_stream.py",
    "tests/spark/test_spark_kafka.py",
    "tests/spark/test_spark_batch.py",
    "tests/spark/test_session.py",
    "tests/cli/test_demo.py",
    "tests/docs/test_documents.py",
)
"""They start Spark; longest before shorter."""

_LONG: Final = (
    "tests/consumer/test_group.py",
    "tests/weaknesses/test_peers.py",
    "tests/protocol/test_kio.py",
    "tests/consumer/test_liveness.py",
    "tests/consumer/test_migration.py",
    "tests/consumer/assignors/test_java_groups.py",
    "tests/consumer/application/test_interrupted.py",
    "tests/protocol/test_round_trip.py",
    "tests/consumer/test_logging.py",
    "tests/consumer/test_deadlines.py",
    "tests/consumer/test_leaders_kafka.py",
    "tests/consumer/test_consumer_protocol.py",
    "tests/consumer/test_reading.py",
    "tests/consumer/test_positions.py",
    "tests/consumer/application/test_callbacks.py",
    "tests/consumer/test_pattern.py",
    "tests/consumer/test_threads.py",
)
"""They take more than a quarter of a minute."""

_RANK: Final = {path: rank for rank, path in enumerate((*_HEAVY, *_LONG))}


def by_length(items: list[pytest.Item]) -> None:
    """Put what takes long first; the order inside a file stays, and that of the other files."""
    items.sort(key=lambda item: _RANK.get(_file_of(item.nodeid), len(_RANK)))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """For pytest-xdist's ``--dist loadfile``: hands out files, and the heavy ones as one."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "heavy" if _file_of(nodeid) in _HEAVY else _file_of(nodeid)

    return Files(config, log)


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
