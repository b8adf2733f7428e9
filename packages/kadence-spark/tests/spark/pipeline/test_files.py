"""Values and rows that Spark's files would lose or change, by real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Cluster
from tests.spark.pipeline.conftest import SINK, File

from kadence import Consumer, Producer, TopicPartition
from kadence.errors import IllegalStateError
from kadence.work.letters import replayed
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.replay import Wanted, replay
from kadence_spark.pipeline.run import Run

pytestmark = pytest.mark.shared_spark


def test_the_time_of_a_dead_letter_record(spark: SparkSession, cluster: Cluster, file: File) -> None:
    """dead-letters replay keeps it: a local time without a zone is not one."""
    cluster.create(1)
    bad = f"{cluster.topic}-bad"
    cluster.admin.create_topics({bad: 1})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(cluster.topic, b"{broken", timestamp=1_700_000_000_123)
    file.write(tables="")
    text = file.path.read_text()
    file.path.write_text(text.replace(f'path = "{file.directory}/letters"', f'topic = "{bad}"'))
    Run(checked(read(file.path, {}), file.environment), file.environment, spark).run()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(bad, 0)])
        consumer.seek_to_beginning()
        (letter,) = consumer.poll(10)
    assert dict(replayed(letter, cluster.topic, 0).headers)["kadence.replay.timestamp"] == b"1700000000123"


def test_a_replay_meets_tables_as_they_are(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    """A table of dead letters that is not there yet; rows that do not name their records."""
    cluster.create(1)
    file.produce(range(4))
    pipeline = file.write()
    Run(pipeline, file.environment, spark).run()
    replay(pipeline, file.environment, spark, Wanted.read(cluster.topic, None, "0", "2"))
    file.send(b"{broken")
    Run(pipeline, file.environment, spark).run()
    assert spark.read.parquet(f"{tmp_path}/letters").count() == 1
    file.produce(range(4, 6))
    Run(file.write(sink=f"{SINK}provenance = false\n"), file.environment, spark).run()
    with pytest.raises(IllegalStateError, match="or a batch of it, has no column _topic"):
        replay(file.write(), file.environment, spark, Wanted.read(cluster.topic, None, "0", None))
    rows = spark.read.parquet(f"{tmp_path}/table").select("id").collect()
    assert sorted(row.id for row in rows) == list(range(6))
