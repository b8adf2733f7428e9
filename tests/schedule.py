"""Which process of a run takes which tests, and in what order.

A file stays in one process, since it shares brokers. Files that use the shared session of Spark share one process,
which so starts it once. Those that start Spark themselves share another: three at a time would leave the other tests
no processor. What takes longest begins first, so that no process is left alone with it at the end.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

__all__ = ["LISTED", "by_length", "scheduler", "uses_shared_spark"]

_OWN_SPARK: Final = (
    "tests/docs/test_documents.py",
    "tests/spark/pipeline/test_kill.py",
    "tests/cli/test_demo.py",
    "tests/interop/test_spark_connector.py",
    "tests/spark/test_cluster.py",
    "tests/spark/pipeline/test_spark_pipelines.py",
    "tests/spark/test_connect.py",
    "tests/spark/pipeline/test_delta.py",
    "tests/spark/pipeline/test_signals.py",
)
"""They start applications of Spark one after the other; longest before shorter."""

_SHARED_SPARK: Final = (
    "tests/spark/pipeline/test_run.py",
    "tests/spark/pipeline/test_aggregate.py",
    "tests/spark/lakehouse/test_spark_lakehouse.py",
    "tests/spark/sink/test_spark_transactions.py",
    "tests/spark/pipeline/test_lakehouse.py",
    "tests/spark/source/test_spark_stream.py",
    "tests/spark/test_session.py",
    "tests/spark/pipeline/test_formats.py",
    "tests/spark/pipeline/test_examples.py",
    "tests/spark/decode/test_spark_decode.py",
    "tests/spark/source/test_pushdown.py",
    "tests/spark/source/test_spark_batch.py",
    "tests/spark/sink/test_spark_sink.py",
    "tests/spark/source/test_spark_kafka.py",
    "tests/spark/source/test_restart.py",
    "tests/spark/source/test_gaps.py",
    "tests/spark/pipeline/test_declare.py",
    "tests/spark/pipeline/test_keeping.py",
    "tests/spark/test_logins.py",
)
"""They use the session that a process of the run starts once; longest before shorter."""

_LONG: Final = (
    "tests/interop/test_mixed_groups.py",
    "tests/interop/test_verifiable_tools.py",
    "tests/consumer/test_group.py",
    "tests/weaknesses/test_peers.py",
    "tests/docs/test_snippets.py",
    "tests/spark/decode/test_avro.py",
    "tests/broker/storage/test_processes.py",
    "tests/bench/test_rows.py",
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

_RANK: Final = {path: rank for rank, path in enumerate((*_OWN_SPARK, *_SHARED_SPARK, *_LONG))}

LISTED: Final = tuple(_RANK)
"""All paths that stand here."""

_GROUPS: Final = dict.fromkeys(_OWN_SPARK, "own Spark") | dict.fromkeys(_SHARED_SPARK, "shared Spark")


def by_length(items: list[pytest.Item]) -> None:
    """Put what takes long first; the order inside a file stays, and that of the other files."""
    items.sort(key=lambda item: _RANK.get(_file_of(item.nodeid), len(_RANK)))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """For pytest-xdist's ``--dist loadfile``: hands out files, and those with Spark as two groups."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = _file_of(nodeid)
            return _GROUPS.get(file, file)

    return Files(config, log)


def uses_shared_spark(path: str) -> bool:
    """Whether a file is among those that use the shared session."""
    return path in _SHARED_SPARK


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
