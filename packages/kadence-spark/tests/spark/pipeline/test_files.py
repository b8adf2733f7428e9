"""Values and rows that Spark's files would lose or change, by real Spark."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Cluster
from tests.spark.lakehouse.test_spark_lakehouse import forget_the_last_batch
from tests.spark.pipeline.conftest import SINK, TABLES, File

from kadence import Consumer, Producer, TopicPartition
from kadence.errors import IllegalStateError
from kadence.work.letters import replayed
from kadence_spark.pipeline.checks import check, checked
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.replay import Wanted, replay
from kadence_spark.pipeline.run import PipelineError, Run

pytestmark = pytest.mark.shared_spark

ODD = """\
[[transform]]
name = "odd"
sql = '''
SELECT id, CASE id % 3 WHEN 0 THEN -0.0D WHEN 1 THEN 0.0D ELSE double('NaN') END AS x,
    timestamp_micros(253402214400123456) AS at
FROM records
'''
"""


def test_values_that_files_would_change(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    """0.0 and -0.0 have one place in Spark's order and two directories; INT96 as others read it ends in 2262."""
    import pyarrow.dataset as ds

    cluster.create(1)
    file.produce(range(30))
    sink = SINK.replace('["part"]', '["${{MEASURE:-x}}"]')
    Run(file.write(tables=ODD, sink=sink), file.environment, spark).run()
    table = ds.dataset(tmp_path / "table", partitioning="hive").to_table(columns=["id", "x", "at"])
    assert sorted(zip(table["id"].to_pylist(), table["x"].to_pylist(), strict=True)) == [
        (number, ("-0.0", "0.0", "NaN")[number % 3]) for number in range(30)
    ]
    assert set(table["at"].to_pylist()) == {dt.datetime(9999, 12, 31, 0, 0, 0, 123456, tzinfo=dt.UTC)}

    # The batch is repeated with other partitions, by a session that would keep those that are there.
    forget_the_last_batch(tmp_path)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        Run(file.write(tables=ODD.replace("0.0D", "1.0D"), sink=sink), file.environment, spark).run()
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert spark.read.parquet(f"{tmp_path}/table").count() == 30


def test_times_in_json(spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path) -> None:
    """Spark's own JSON and CSV have milliseconds."""
    cluster.create(1)
    file.produce(range(2))
    out = f"{cluster.topic}-out"
    cluster.admin.create_topics({out: 1})
    for sink in (f'topic = "{out}"', f'path = "{tmp_path}/table"\nformat = "json"'):
        Run(file.write(tables=ODD, sink=f"[sink]\n{sink}\n"), file.environment, spark).run()
        forget_the_last_batch(tmp_path)
    (written,) = (tmp_path / "table" / "batch=0").glob("part-*.json")
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(out, 0)])
        consumer.seek_to_beginning()
        texts = [consumer.poll(10, max_records=1)[0].value or b"" for _ in range(2)]
    for text in (*texts, *written.read_text().splitlines()):
        at = dt.datetime.fromisoformat(json.loads(text)["at"])
        assert at == dt.datetime(9999, 12, 31, 0, 0, 0, 123456, tzinfo=dt.UTC)


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
    assert not (tmp_path / "checkpoint" / "kadence" / "replayed").exists()
    rows = spark.read.parquet(f"{tmp_path}/table").select("id").collect()
    assert sorted(row.id for row in rows) == list(range(6))


def test_a_replay_leaves_rows_of_records_that_are_gone(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    """Compaction has removed them, and no error says so; or the topic was made anew, and has others there."""
    cluster.create(1, **{"cleanup.policy": "compact"})
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=cluster.topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(3):
            producer.send(cluster.topic, b'{"id":%d,"part":"001"}' % number, b"key")
        producer.commit_transaction()
    file.produce(range(4, 6))
    Run(file.write(), file.environment, spark).run()
    # Offset 3 is the end of the transaction. It stands for a record that was there.
    provenance = f"'{cluster.topic}' AS _topic, 0 AS _partition, 3L AS _offset"
    gone = f"SELECT 77L AS id, '001' AS part, 38.5D AS half, {provenance}"
    place = f"{tmp_path}/table/batch=0"
    spark.sql(gone).write.mode("append").partitionBy("part").parquet(place)
    mended = file.write(tables=TABLES.replace("id / 2", "id / 4"))
    replay(mended, file.environment, spark, Wanted.read(cluster.topic, None, "0", None))
    rows = spark.read.parquet(f"{tmp_path}/table").select("id", "half").collect()
    assert sorted((row.id, row.half) for row in rows) == [*((n, n / 4) for n in (0, 1, 2, 4, 5)), (77, 38.5)]
    cluster.admin.delete_topics([cluster.topic])
    cluster.create(1)
    file.produce(range(10, 20))
    with pytest.raises(IllegalStateError, match="is another one than the pipeline has read"):
        replay(mended, file.environment, spark, Wanted.read(cluster.topic, None, "0", None))


def test_a_table_of_an_older_version(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    """Its own file does not say what its batches are like. A name that is escaped in an address is one, too."""
    cluster.create(1)
    marker = tmp_path / "table" / "_kadence.json"
    tables = transform("SELECT id, CAST(id % 2 AS string) AS `größe`, id / 2 AS half FROM records")
    sink = SINK.replace('part"', 'größe"')
    for number in range(3):
        file.produce(range(number, number + 1))
        if number == 2:
            with pytest.raises(PipelineError, match="column half is bigint now, and double in the table"):
                Run(file.write(tables=tables.replace("/ 2", "* 2"), sink=sink), file.environment, spark).run()
            other = SINK.replace('part"', 'id"')
            with pytest.raises(PipelineError, match="is partitioned by größe, and by id now"):
                Run(file.write(tables=tables, sink=other), file.environment, spark).run()
        Run(file.write(tables=tables, sink=sink), file.environment, spark).run()
        owner = json.loads(marker.read_text())
        marker.write_text(json.dumps({"query": owner["query"], "part": owner["part"]}))
    rows = spark.read.parquet(f"{tmp_path}/table").select("id").collect()
    assert sorted(row.id for row in rows) == [0, 1, 2]


def transform(sql: str) -> str:
    return f'[[transform]]\nname = "t"\nsql = "{sql}"\n'


WRONG = {
    "no such column": ("", SINK.replace('"part"', '"no"'), "", "sink.partition_by", "there is no column no"),
    "a column twice": (
        "",
        SINK.replace('"part"', '"part", "PART"'),
        "",
        "sink.partition_by",
        "a column twice",
    ),
    "the name of the directories": (
        transform("SELECT id, part, id AS Batch FROM records"),
        SINK,
        "",
        "sink",
        "column 'batch', which is the name of the directories",
    ),
    "a column that would be overwritten": (
        transform("SELECT id, part, 1 AS _Reason FROM records"),
        SINK,
        "",
        "transform[0].sql",
        "a column _Reason, which is a name of Kadence's",
    ),
    "provenance that would be overwritten": (
        transform("SELECT *, 7 AS _offset FROM records"),
        SINK,
        "",
        "transform[0].sql",
        "a column _offset, which is a name of Kadence's",
    ),
    "a type that no topic takes": (
        transform("SELECT id AS value FROM records"),
        '[sink]\ntopic = "out"\n',
        "",
        "sink",
        "column 'value' is bigint",
    ),
    "columns beside a value": (
        transform("SELECT id, part AS value, id AS n FROM records"),
        "[sink]\ntopic = 'out'\nkey = 'id + 1'\n",
        "",
        "sink",
        "the column value is the record's value, and n would be lost",
    ),
    "a type that no Delta table takes": (
        transform("SELECT INTERVAL 1 DAY AS x FROM records"),
        '[sink]\nformat = "kadence-delta"\npath = "{directory}/table"\n',
        "",
        "sink",
        "column x has the type interval day",
    ),
    "headers in CSV": ("", SINK, 'format = "csv"\n', "dead_letters", "column headers is array"),
    "keys as names of directories": (
        "",
        SINK,
        'partition_by = ["key"]\n',
        "dead_letters.partition_by",
        "column key is binary",
    ),
    "headers that partition an Iceberg table": (
        "",
        SINK,
        'format = "kadence-iceberg"\ntable = "a.letters"\npartition_by = ["headers"]\n',
        "dead_letters",
        "there is no plain column headers",
    ),
    "keys that partition a Delta table": (
        "",
        SINK,
        'format = "kadence-delta"\npartition_by = ["key"]\n',
        "dead_letters",
        "column key is binary",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_check_says_of_columns(spark: SparkSession, cluster: Cluster, file: File, case: str) -> None:
    """Else the first batch fails, or, for dead letter records, one after weeks; or values are lost."""
    tables, sink, more, key, said = WRONG[case]
    cluster.create(1)
    file.write(tables=tables, sink=sink)
    text = file.path.read_text()
    if "table" in more:
        text = text.replace(f'path = "{file.directory}/letters"\n', "")
    file.path.write_text(text + more)
    (mistake,) = check(read(file.path, {}), file.environment, spark)
    assert (mistake.key, said in mistake.text) == (key, True), mistake
