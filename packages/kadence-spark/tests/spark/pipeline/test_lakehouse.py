"""A pipeline into Iceberg, with dead letters in Delta, without their jars: a batch that is done again is there once."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Cluster
from tests.spark.lakehouse.conftest import Lake, needs
from tests.spark.lakehouse.test_spark_lakehouse import forget_the_last_batch
from tests.spark.pipeline.conftest import File

from kadence_spark.pipeline.checks import check
from kadence_spark.pipeline.outputs import guarantee
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.run import Run

pytestmark = pytest.mark.shared_spark

SINK = """\
[sink]
format = "kadence-iceberg"
table = "shop.orders"
partition_by = ["part"]
catalog.type = "sql"
catalog.uri = "sqlite:///{directory}/catalogue.db"
catalog.warehouse = "file://{directory}/warehouse"
"""


def in_delta(file: File) -> None:
    """The dead letters."""
    text = file.path.read_text()
    file.path.write_text(text.replace('letters"\n', 'table"\nformat = "kadence-delta"\n'))


@pytest.mark.heavy
def test_a_batch_done_again_is_in_both_tables_once(spark: SparkSession, cluster: Cluster, file: File) -> None:
    for module in ("deltalake", "pyiceberg", "duckdb"):
        needs(module)
    cluster.create(1)
    file.produce(range(20))
    file.send(b"{broken")
    file.write(sink=SINK)
    in_delta(file)
    pipeline = read(file.path, {}).pipeline
    assert pipeline is not None
    assert pipeline.dead_letters is not None
    assert {guarantee(pipeline.sink), guarantee(pipeline.dead_letters)} == {"exactly once"}
    for again in (True, False):
        Run(pipeline, file.environment, spark).run()
        if again:
            forget_the_last_batch(file.directory)
    assert sorted(row[0] for row in Lake("iceberg", file.directory).rows("id")) == list(range(20))
    assert Lake("delta", file.directory).rows("value, reason")[0][0] == b"{broken"
    assert len(Lake("delta", file.directory).rows()) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('table = "shop.orders"', 'path = "orders"', "format kadence-iceberg needs table, not path"),
        ('table = "shop.orders"', "", "exactly one of path, table and topic"),
        ("catalog.type", "catalogue.type", "unknown option 'catalogue.type'"),
        ('"shop.orders"', '"shop.orders"\nmergeSchema = "often"', "'often' is not true or false"),
    ],
)
def test_mistakes(file: File, old: str, new: str, said: str) -> None:
    file.write(sink=SINK)
    file.path.write_text(file.path.read_text().replace(old, new))
    (found,) = check(read(file.path, {}), file.environment)
    assert said in str(found)
