"""Groups over all batches: what is counted, what a restart keeps, and what is refused before anything runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Cluster
from tests.spark.pipeline.test_formats import records

from kadence import Producer
from kadence.environment import Environment
from kadence.errors import ConfigError, IllegalStateError
from kadence_spark.pipeline.checks import check, checked
from kadence_spark.pipeline.declare import declare
from kadence_spark.pipeline.model import Aggregate, Pipeline
from kadence_spark.pipeline.preview import preview
from kadence_spark.pipeline.reading import parse
from kadence_spark.pipeline.replay import Wanted, replay
from kadence_spark.pipeline.run import PipelineError, Run

pytestmark = pytest.mark.shared_spark

PAGE = Path(__file__).parents[5] / "docs" / "pipelines.md"


def _on_the_page() -> str:
    """The file that docs/pipelines.md shows."""
    found = PAGE.read_text().partition("<!-- a pipeline with an aggregate -->")[2]
    return found.partition("```toml\n")[2].partition("```")[0]


FILE = _on_the_page()


def text(cluster: Cluster | None = None, directory: Path | str = "out", *changes: tuple[str, str]) -> str:
    made = FILE
    for old, new in changes:
        assert old in made
        made = made.replace(old, new)
    if cluster is not None:
        made = made.replace('["orders"]', f'["{cluster.topic}"]')
    return made.replace('"out/', f'"{directory}/')


def pipeline(cluster: Cluster, directory: Path, *changes: tuple[str, str]) -> Pipeline:
    return checked(parse(text(cluster, directory, *changes), "counts.toml", {}), surroundings(cluster))


def surroundings(cluster: Cluster) -> Environment:
    return Environment({"KADENCE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers})


def produce(cluster: Cluster, *orders: tuple[int, str]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for second, city in orders:
            at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
            producer.send(cluster.topic, json.dumps({"at": at, "city": city}).encode())


def table(spark: SparkSession, directory: Path) -> list[tuple[int, str, int]]:
    rows = (
        spark.read.parquet(f"{directory}/counts").selectExpr("minute(since) AS m", "city", "orders").collect()
    )
    return sorted((row.m, row.city, row.orders) for row in rows)


UPDATE = ('delay = "10s"', 'delay = "10s"\nmode = "update"')


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([('watermark = "at"\ndelay = "10s"\n', "")], r"^22: aggregate: append writes .* watermark = \"at\""),
        ([('delay = "10s"\n', "")], r"^22: aggregate: the watermark needs a delay, such as delay = \"10m\""),
        ([('watermark = "at"\n', "")], r"^23: aggregate\.delay: is that of a watermark; name its column"),
        ([("10s", "soon")], r"^24: aggregate\.delay: 'soon' is not a time such as"),
        ([UPDATE], r"^25: aggregate\.mode: format parquet takes append, not update"),
        ([("10s", '10s"\nmode = "often')], r"^25: aggregate\.mode: 'often' is not known"),
        ([('/counts"', '/counts"\nprovenance = true')], r"^33: sink\.provenance: groups are made of many records"),
    ],
)  # fmt: skip
def test_mistakes(changes: list[tuple[str, str]], told: str) -> None:
    (found,) = check(parse(text(None, "out", *changes), "p.toml", {}), Environment({}))
    shown = f"{found.line}: {found.key}: {found.text}"
    assert re.search(told, shown), shown


@pytest.mark.parametrize(
    ("given", "ms"),
    [("500ms", 500), ("10 s", 10_000), ("10 minutes", 600_000), ("2h", 7_200_000), ("1 day", 86_400_000)],
)
def test_delays(given: str, ms: int) -> None:
    assert Aggregate(sql="", delay=given).delay_ms == ms


@pytest.mark.heavy
def test_groups_over_a_restart_and_a_batch_that_is_repeated(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(1)
    made = pipeline(cluster, tmp_path)
    environment = surroundings(cluster)
    produce(cluster, (5, "bonn"), (15, "bonn"), (20, "köln"), (30, "nowhere"), (61, "bonn"))

    planned = preview(made, environment, spark, 10)
    assert [name for name, _ in planned.columns] == ["since", "city", "orders"]
    assert sorted((row["city"], row["orders"]) for row in planned.sample) == [
        ("BONN", 1),
        ("BONN", 2),
        ("KÖLN", 1),
    ]

    first = Run(made, environment, spark).run()
    # No row is later than the first minute by the delay yet: its groups are in the state.
    assert (first.rows_in, first.rows_out, first.dropped) == (5, 0, 1)
    assert spark.read.parquet(f"{tmp_path}/dead-letters").selectExpr("reason").first() == (
        "expectation somewhere",
    )

    # Groups are written, then the dead letters of the same batch fail.
    produce(cluster, (40, "bonn"), (75, "köln"), (80, "nowhere"))
    run = Run(made, environment, spark)

    def fail(rows: DataFrame, batch: int, query: str) -> None:
        raise IllegalStateError("the disk is full")

    monkeypatch.setattr(run._dead, "write", fail)
    with pytest.raises(PipelineError, match=r"^the disk is full$"):
        run.run()
    assert table(spark, tmp_path) == [(0, "BONN", 3), (0, "KÖLN", 1)]
    again = Run(made, environment, spark).run()
    assert (again.rows_in, again.rows_out, again.dropped) == (3, 0, 1)
    assert table(spark, tmp_path) == [(0, "BONN", 3), (0, "KÖLN", 1)]

    # Too late for the first minute; the second one ends.
    produce(cluster, (59, "bonn"), (200, "bonn"))
    last = Run(made, environment, spark).run()
    assert (last.rows_in, last.rows_out) == (2, 2)
    assert table(spark, tmp_path) == [(0, "BONN", 3), (0, "KÖLN", 1), (1, "BONN", 1), (1, "KÖLN", 1)]
    assert spark.read.parquet(f"{tmp_path}/dead-letters").count() == 2

    with pytest.raises(ConfigError, match="replay cannot replace some of them"):
        replay(made, environment, spark, Wanted.read(cluster.topic, None, "0", None))
    (tmp_path / "counts.toml").write_text(text(cluster, tmp_path))
    with pytest.raises(ConfigError, match="takes no file with an aggregate"):
        declare(tmp_path / "counts.toml")


def test_a_topic_takes_each_change(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(1)
    out = f"{cluster.topic}-out"
    cluster.admin.create_topics({out: 1})
    sql = "SELECT city AS key, city, count(*) AS orders FROM orders GROUP BY city"
    made = pipeline(
        cluster,
        tmp_path,
        ('watermark = "at"\ndelay = "10s"\n', 'mode = "update"\n'),
        (FILE[FILE.index("sql = '''") : FILE.index("[sink]")], f'sql = "{sql}"\n\n'),
        ('path = "out/counts"', f'topic = "{out}"'),
        ('\n[dead_letters]\npath = "out/dead-letters"\n', ""),
    )
    seen: list[Any] = []
    for count, orders in enumerate(([(1, "bonn"), (2, "bonn"), (3, "köln")], [(4, "bonn"), (5, "nowhere")])):
        produce(cluster, *orders)
        done = Run(made, surroundings(cluster), spark).run()
        assert done.rows_out == 2 - count
    seen = [(each.key, json.loads(each.value or b"")["orders"]) for each in records(cluster, out, 3)]
    assert sorted(seen[:2]) == [(b"BONN", 2), ("KÖLN".encode(), 1)]
    assert seen[2] == (b"BONN", 3)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("count(*) AS orders", "nothing AS orders", "aggregate: .*nothing"),
        ("FROM orders\n", "FROM records\n", "aggregate: .*records"),
        (
            "GROUP BY window(at, '1 minute'), city",
            "GROUP BY at, city ORDER BY city",
            "aggregate, in mode append: ",
        ),
        ('watermark = "at"', 'watermark = "city"', "aggregate: "),
    ],
)
def test_what_spark_refuses_is_told_before_a_batch(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, old: str, new: str, told: str
) -> None:
    changes = [(old, new)]
    if "ORDER" in new:
        changes.append(("SELECT window.start AS since,", "SELECT at AS since,"))
    (found,) = check(parse(text(cluster, tmp_path, *changes), "p.toml", {}), surroundings(cluster), spark)
    assert (found.key, bool(re.match(told, found.text))) == ("aggregate", True), found
