"""Advice in errors of sources, sinks and sessions: what is done by it is accepted. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import CaseInsensitiveDict

from kadence.errors import ConfigError, MissingDependencyError
from kadence_spark.datasource import KadenceDataSource
from kadence_spark.lakehouse.datasource import DeltaSource, IcebergSource
from kadence_spark.session import _tell_of_javas_settings, _tell_of_late_settings


def a_source(**options: str) -> KadenceDataSource:
    given = CaseInsensitiveDict()
    given.update({"kafka.bootstrap.servers": "localhost:9092", **options})
    return KadenceDataSource(given)


COLUMNS_READ = T.StructType([T.StructField("value", T.BinaryType())])


def test_streams_of_an_older_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = a_source(subscribe="t"), a_source(topic="t")
    with monkeypatch.context() as patch:
        patch.setattr("pyspark.__version__", "4.1.4")
        with pytest.raises(
            MissingDependencyError, match=r"need PySpark 4\.2 or newer; batch queries work with this one"
        ):
            reads.streamReader(COLUMNS_READ)
        reads.reader(COLUMNS_READ)
        writes.streamWriter(COLUMNS_READ, overwrite=False)
        patch.setattr("pyspark.__version__", "4.0.1")
        with pytest.raises(
            MissingDependencyError, match=r"need PySpark 4\.1 or newer; batch writes work with this one"
        ):
            writes.streamWriter(COLUMNS_READ, overwrite=False)
        writes.writer(COLUMNS_READ, overwrite=False)
        patch.setattr("pyspark.__version__", "4.2.0")
        reads.streamReader(COLUMNS_READ)


def running(settings: Mapping[str, str], java: Mapping[str, str]) -> Any:
    """A session that was started with these settings, on a Java that was started with others."""
    config = SimpleNamespace(ConfigEntry=SimpleNamespace(findEntry=lambda _: "known"))
    jvm = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(spark=SimpleNamespace(internal=SimpleNamespace(config=config)))
        ),
        java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getProperty=java.get))),
    )
    context = SimpleNamespace(
        _jvm=jvm, getConf=lambda: SimpleNamespace(getAll=lambda: list(settings.items()))
    )
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(isModifiable=lambda _: False))


def test_settings_that_come_too_late_for_a_session(caplog: pytest.LogCaptureFixture) -> None:
    given = {"spark.ui.port": "4050", "spark.driver.memory": "2g"}
    _tell_of_late_settings(running({}, {}), given)
    (told,) = caplog.messages
    assert told.endswith("have no effect: spark.ui.port; stop() it first to start one with them")
    caplog.clear()
    _tell_of_late_settings(running(given, {}), given)
    assert not caplog.messages


def test_settings_that_come_too_late_for_java(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs until the program ends: a session that is stopped before the next one is no help."""
    given = {"spark.ui.port": "4050", "spark.driver.memory": "2g"}
    stopped_before = running(given, {"spark.driver.memory": "1g"})
    _tell_of_javas_settings(stopped_before, given)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    _tell_of_javas_settings(stopped_before, given)
    plain, submitted = caplog.messages
    assert plain.endswith(
        "have no effect: spark.driver.memory; start the program anew with them in its first session"
    )
    assert submitted.endswith("have no effect: spark.driver.memory; give them to spark-submit")
    caplog.clear()
    _tell_of_javas_settings(running({}, given), given)
    assert not caplog.messages


def test_a_topic_is_appended_to() -> None:
    with pytest.raises(ConfigError, match=re.escape('use .mode("append")')):
        a_source(topic="t").writer(COLUMNS_READ, overwrite=True)
    a_source(topic="t").writer(COLUMNS_READ, overwrite=False)


def test_options_that_a_table_does_not_have() -> None:
    bare = KadenceDataSource(CaseInsensitiveDict())
    with pytest.raises(ConfigError, match=re.escape("WITH ('kafka.bootstrap.servers'='...', ...)")):
        bare.schema()
    assert a_source(subscribe="t").schema()
    with pytest.raises(
        ConfigError, match=re.escape('df.write.format("kadence") with the options kafka.bootstrap')
    ):
        bare.writer(COLUMNS_READ, overwrite=False)
    a_source(topic="t").writer(COLUMNS_READ, overwrite=False)


@pytest.mark.parametrize(("kind", "reader"), [(DeltaSource, "delta"), (IcebergSource, "iceberg")])
def test_a_sink_of_tables_reads_none(kind: type[DeltaSource], reader: str) -> None:
    with pytest.raises(ConfigError, match=f"read them with the {reader} reader of your choice"):
        kind(CaseInsensitiveDict()).schema()
