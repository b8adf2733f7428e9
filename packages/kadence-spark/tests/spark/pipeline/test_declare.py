"""A file as tables of Spark's declarative pipelines: what it declares, and that the plans of it are analysed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.sql import SparkSession
from tests.spark.conftest import Cluster
from tests.spark.pipeline.conftest import File

from kadence.errors import ConfigError
from kadence_spark.pipeline.declare import declare
from kadence_spark.pipeline.reading import PipelineFileError

pytestmark = pytest.mark.shared_spark


class Graph(GraphElementRegistry):
    """Keeps what is declared."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.flows: dict[str, Any] = {}

    def register_output(self, output: Any) -> None:
        self.outputs.append(output)

    def register_flow(self, flow: Any) -> None:
        self.flows[flow.name] = flow.func

    def register_auto_cdc_flow(self, flow: Any) -> None:
        raise AssertionError(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError(sql_text)


def test_what_a_file_declares(spark: SparkSession, cluster: Cluster, file: File) -> None:
    file.write()
    graph = Graph()
    with graph_element_registration_context(graph):
        declare(file.path)
    kinds = {output.name: type(output).__name__ for output in graph.outputs}
    assert kinds == {
        "records": "TemporaryView",
        "halves": "TemporaryView",
        "numbers_judged": "StreamingTable",
        "numbers": "StreamingTable",
        "numbers_dead_letters": "StreamingTable",
    }
    (table,) = (output for output in graph.outputs if output.name == "numbers")
    assert table.partition_cols == ["part"]
    for view in ("records", "halves"):
        graph.flows[view]().createOrReplaceTempView(view)
    # Both tables are made of the one that holds what was found of each row.
    graph.flows["numbers_judged"]().createOrReplaceTempView("numbers_judged")
    rows = graph.flows["numbers"]()
    assert rows.isStreaming
    assert sorted(rows.columns) == ["_offset", "_partition", "_topic", "half", "id", "part"]
    assert graph.flows["numbers_dead_letters"]().columns[-3:] == ["reason", "pipeline", "run_id"]


def statement(sql: str) -> str:
    return f"[[transform]]\nname = 'ids'\nsql = '{sql}'\n"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM records UNION SELECT -id FROM records",
        "SELECT DISTINCT id FROM records",
        "SELECT a.id FROM records a JOIN records b USING (id)",
        "SELECT count(*) AS n FROM records",
    ],
)
def test_a_statement_that_loses_the_record_is_refused(
    spark: SparkSession, cluster: Cluster, file: File, sql: str
) -> None:
    file.write(tables=statement(sql))
    with (
        graph_element_registration_context(Graph()),
        pytest.raises(ConfigError, match="transform ids loses the column _record, by which"),
    ):
        declare(file.path)


@pytest.mark.parametrize(
    "sql",
    [
        'WITH r AS (SELECT _record, id, "{" AS c FROM records) SELECT _record, id FROM r;',
        "WITH r AS (SELECT id FROM records), o AS (SELECT 1 AS x) SELECT id, x FROM r, o;",
        "SELECT id FROM records UNION ALL (SELECT -id FROM records) -- both",
        "SELECT id FROM (SELECT id, part FROM records WHERE id IN (SELECT max(id) FROM records)) ORDER BY 1",
        "SELECT r.id, x FROM records r LEFT JOIN VALUES (1, 2) AS o(id, x) ON r.id = o.id",
        "SELECT id FROM another_table_of_the_project",
    ],
)
def test_a_statement_that_keeps_the_record_or_cannot_be_analysed_yet(
    spark: SparkSession, cluster: Cluster, file: File, sql: str
) -> None:
    file.write(tables=statement(sql))
    with graph_element_registration_context(Graph()):
        declare(file.path)


def test_where_decoding_asks_a_registry_each_record_is_decoded_once(
    spark: SparkSession, cluster: Cluster, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write()
    asking = file.path.read_text().replace(
        'format = "json"\nschema = "id bigint, part string"',
        'format = "avro"\nschema.registry.url = "http://r:1"',
    )
    file.path.write_text(asking)
    monkeypatch.setattr(
        "kadence_spark.pipeline.declare.value_type", lambda *_: "struct<id:bigint,part:string>"
    )
    graph = Graph()
    with graph_element_registration_context(graph):
        declare(file.path)
    assert [each.name for each in graph.outputs] == [
        *("numbers_decoded", "records", "halves", "numbers_judged", "numbers", "numbers_dead_letters")
    ]
    graph.flows["numbers_decoded"]().createOrReplaceTempView("numbers_decoded")
    assert graph.flows["records"]().columns == ["id", "part", "_record"]


def test_a_file_with_mistakes_declares_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("checkpoint = 1\n")
    graph = Graph()
    with (
        graph_element_registration_context(graph),
        pytest.raises(PipelineFileError, match=r"source.* is missing"),
    ):
        declare(tmp_path / "bad.toml")
    assert graph.outputs == []
