"""A pipeline from topic to table on real Spark: what is in the table, beside it, and told of it."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.patience import until
from tests.spark.conftest import Cluster
from tests.spark.lakehouse.test_spark_lakehouse import forget_the_last_batch
from tests.spark.pipeline.conftest import SINK, TABLES, File

from kadence import Broker, Consumer, Record, TopicPartition
from kadence.errors import ConfigError, IllegalStateError
from kadence_spark.pipeline.checkpoint import planned
from kadence_spark.pipeline.checks import check, checked
from kadence_spark.pipeline.files import HadoopFiles, LocalFiles
from kadence_spark.pipeline.frames import loaded
from kadence_spark.pipeline.judging import Judge, observed
from kadence_spark.pipeline.outputs import guarantee
from kadence_spark.pipeline.preview import preview
from kadence_spark.pipeline.progress import Progress
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.replay import Wanted, replay
from kadence_spark.pipeline.run import PipelineError, Run
from kadence_spark.pipeline.status import status

pytestmark = pytest.mark.shared_spark


def ids(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(directory / "table")).select("id").collect())


def letters(spark: SparkSession, directory: Path) -> list[tuple[bytes, str]]:
    rows = spark.read.parquet(str(directory / "letters")).orderBy("partition", "offset").collect()
    return [(bytes(row.value), row.reason[: len("decode: value: not JSON")]) for row in rows]


def test_a_pipeline_whole(spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path) -> None:
    cluster.create(2)
    file.produce(range(100), partition=0)
    file.send(b"{broken", b'{"id":5000,"part":"x"}', None, partition=1)
    pipeline = file.write(source="maxOffsetsPerTrigger = 60")

    planned = preview(pipeline, file.environment, spark, 10)
    assert [(each.partition.partition, each.start, each.end) for each in planned.ranges] == [
        (0, 0, 100),
        (1, 0, 3),
    ]
    assert all((each.size or 0) > 0 for each in planned.ranges)
    assert [name for name, _ in planned.columns] == ["id", "part", "half", "_topic", "_partition", "_offset"]
    assert [row["reason"].partition(" ")[0] for row in planned.letters] == ["decode:", "expectation"]
    assert planned.sample[:2] == [
        {"id": 0, "part": "000", "half": 0.0, "_topic": cluster.topic, "_partition": 0, "_offset": 0},
        {"id": 1, "part": "001", "half": 0.5, "_topic": cluster.topic, "_partition": 0, "_offset": 1},
    ]

    told: list[Progress] = []
    done = Run(pipeline, file.environment, spark, tell=told.append).run()
    assert (done.state, done.rows_in, done.rows_out, done.undecoded, done.dropped) == (
        "finished",
        103,
        100,
        1,
        1,
    )
    assert done.batches >= 2
    assert done.expectations == {"small": 1, "even": 50}
    assert done.total_lag == 0
    assert told[-1] == done
    assert ids(spark, tmp_path) == list(range(100))
    # The tombstone has no id, and the transform's own WHERE leaves it out.
    assert letters(spark, tmp_path) == [
        (b"{broken", "decode: value: not JSON"),
        (b'{"id":5000,"part":"x"}', "expectation small"),
    ]
    letter = spark.read.parquet(str(tmp_path / "letters")).orderBy("offset").first()
    assert letter is not None
    assert (letter.topic, letter.partition, letter.offset, bytes(letter.key)) == (cluster.topic, 1, 0, b"key")
    assert [(each.key, bytes(each.value)) for each in letter.headers] == [("h", b"1")]
    assert (letter.pipeline, letter.run_id) == ("numbers", done.run_id)
    assert letter.timestamp is not None

    # Elsewhere and later: from the checkpoint alone, without Spark.
    found = status(LocalFiles(), str(tmp_path / "checkpoint"))
    assert found.state == "finished"
    assert found.progress == done
    assert found.committed is not None
    assert dict(found.committed.offsets) == {
        TopicPartition(cluster.topic, 0): 100,
        TopicPartition(cluster.topic, 1): 3,
    }

    file.produce(range(100, 120), partition=0)
    again = Run(pipeline, file.environment, spark).run()
    assert (again.rows_in, again.rows_out) == (20, 20)
    assert ids(spark, tmp_path) == list(range(120))

    # The rule was wrong: what it dropped comes back, and what was there is there once.
    mended = file.write(tables=TABLES.replace("id < 1000", "id < 9000").replace("id / 2", "id / 4"))
    whole = replay(mended, file.environment, spark, Wanted.read(cluster.topic, None, "0", None))
    assert (whole.before, whole.after) == (120, 121)
    assert ids(spark, tmp_path) == [*range(120), 5000]
    assert letters(spark, tmp_path) == [(b"{broken", "decode: value: not JSON")]
    file.write()
    part = replay(pipeline, file.environment, spark, Wanted.read(cluster.topic, [0], "10", "20"))
    assert (part.before, part.after) == (10, 10)
    table = spark.read.parquet(str(tmp_path / "table"))
    assert table.where("half = id / 2").selectExpr("min(id)", "max(id)").collect() == [(0, 19)]
    assert table.where("half = id / 2 and id >= 10").count() == 10
    assert table.count() == 121
    # Directories of values keep their names through being written again.
    assert {place.name for place in (tmp_path / "table").glob("batch=-1/*")} >= {
        "part=000",
        "part=001",
        "part=002",
    }

    file.produce(range(120, 125), partition=0)
    Run(mended, file.environment, spark).run()
    assert ids(spark, tmp_path) == [*range(125), 5000]

    with pytest.raises(
        ConfigError, match=rf"offset 125 of {cluster.topic}-0 is not in the table yet.* at 125"
    ):
        replay(pipeline, file.environment, spark, Wanted.read(cluster.topic, [0], "10", "126"))
    for topic, partitions, message in (
        ("no", None, "read no topic 'no'"),
        (cluster.topic, [7], "read nothing of .*-7"),
    ):
        with pytest.raises(ConfigError, match=message):
            replay(pipeline, file.environment, spark, Wanted.read(topic, partitions, "0", None))
    with pytest.raises(ConfigError, match="the range is empty"):
        replay(
            pipeline, file.environment, spark, Wanted.read(cluster.topic, None, "time:99999999999999", None)
        )


ANY_DAY = """\
[[expect]]
name = "past"
condition = "id <= unix_millis(current_timestamp())"
action = "drop"

[[expect]]
name = "lucky"
condition = "rand() < 0.7"
action = "drop"
"""


@pytest.mark.parametrize("sink", [pytest.param("table", marks=pytest.mark.heavy), "topic"])
def test_each_row_is_judged_once(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path, sink: str
) -> None:
    """Conditions that tell something else each time: every record is in one of the two outputs."""
    cluster.create(2)
    now = time.time_ns() // 1_000_000
    file.produce(range(now, now + 60_000, 20))
    file.send(b"{broken")
    place = "" if sink == "table" else f'[sink]\ntopic = "{cluster.topic}-out"\nkey = "uuid()"\n'
    pipeline = file.write(tables=ANY_DAY, sink=place or SINK)
    if place:
        cluster.admin.create_topics({f"{cluster.topic}-out": 2})
    planned = preview(pipeline, file.environment, spark, 40)
    assert len(planned.sample) + len(planned.letters) == 40
    done = Run(pipeline, file.environment, spark).run()
    assert (done.rows_in, done.rows_out + done.dropped, done.undecoded) == (3_001, 3_000, 1)
    assert 0 < done.dropped < 3_000
    assert done.dropped <= done.expectations["past"] + done.expectations["lucky"]
    bad = spark.read.parquet(str(tmp_path / "letters")).select("partition", "offset").collect()
    letters_at = {(row.partition, row.offset) for row in bad}
    assert len(bad) == len(letters_at) == done.dropped + 1
    assert not (tmp_path / "checkpoint" / "kadence" / "judged").exists()
    if place:
        ends = cluster.admin.list_offsets(
            {TopicPartition(f"{cluster.topic}-out", each): "latest" for each in (0, 1)}
        )
        assert sum(each.offset for each in ends.values() if each is not None) == done.rows_out
        return
    good = spark.read.parquet(str(tmp_path / "table")).select("_partition", "_offset").collect()
    rows_at = {(row._partition, row._offset) for row in good}
    assert len(good) == len(rows_at) == done.rows_out
    assert not rows_at & letters_at
    again = replay(pipeline, file.environment, spark, Wanted.read(cluster.topic, None, "0", None))
    bad = spark.read.parquet(str(tmp_path / "letters")).select("partition", "offset").collect()
    assert (again.before, again.after + len(bad)) == (done.rows_out, 3_001)


def test_a_batch_that_spark_repeats_is_in_topics_with_transactions_once(
    spark: SparkSession, cluster: Cluster, file: File
) -> None:
    cluster.create(2)
    file.produce(range(20))
    file.send(b"{broken", b"{broken, too")
    out = f"{cluster.topic}-out"
    bad = f"{out}-bad"
    cluster.admin.create_topics({out: 1, bad: 1})
    place = 'topic = "%s"\ntransactions = true\n'
    file.write(tables="", sink=f"[sink]\n{place % out}")
    file.path.write_text(file.path.read_text().replace(f'path = "{file.directory}/letters"\n', place % bad))
    pipeline = checked(read(file.path, {}), file.environment)
    assert pipeline.dead_letters is not None
    assert {guarantee(pipeline.sink), guarantee(pipeline.dead_letters)} == {"exactly once"}
    Run(pipeline, file.environment, spark).run()
    forget_the_last_batch(file.directory)
    file.produce(range(20, 25))
    Run(pipeline, file.environment, spark).run()
    reader = (
        spark.read.format("kadence")
        .option("subscribe", f"{out},{bad}")
        .option("kafka.isolation.level", "read_committed")
    )
    rows = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).load()
    values = Counter(bytes(row.value) for row in rows.select("value").collect())
    assert sum(values.values()) == len(values) == 27
    assert {b"{broken", b"{broken, too"} <= set(values)


def test_a_repeated_batch_keeps_its_verdict(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    """After a crash an output that knows the batch leaves it out; the other must not be told anything else."""
    cluster.create(1)
    file.produce(range(200))
    file.send(b"{broken", b"{broken, too")
    pipeline = file.write(tables=ANY_DAY)
    source = loaded(pipeline, pipeline.source_options(), spark.read)
    judge = Judge(pipeline, HadoopFiles(spark), f"{tmp_path}/judged")
    seen = []
    for _ in range(2):
        with judge.verdict(source, 7, "the query", "0-202") as verdict:
            offsets = sorted(row._offset for row in verdict.rows.select("_offset").collect())
            dropped = sorted(row.o for row in verdict.dropped.selectExpr("_record.offset AS o").collect())
            bad = sorted(bytes(row.v) for row in verdict.undecoded.selectExpr("_record.value AS v").collect())
            seen.append((offsets, dropped, bad, dict(verdict.counts)))
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]
    assert sorted(seen[0][0] + seen[0][1]) == list(range(200))
    assert seen[0][2] == [b"{broken", b"{broken, too"]
    # Another batch, and a file that was changed before the batch was committed.
    for batch, rules in ((8, pipeline), (8, replace(pipeline, expect=()))):
        with Judge(rules, HadoopFiles(spark), f"{tmp_path}/judged").verdict(
            source, batch, "the query", "0-202"
        ) as verdict:
            assert verdict.counts["dropped"] == (0 if not rules.expect else verdict.dropped.count())
        assert [each.name for each in (tmp_path / "judged").iterdir()] == ["8"]


def test_a_verdict_that_is_not_whole_or_of_other_records_fails_the_batch(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    """An output may have the batch already: it is neither written with fewer rows nor judged anew."""
    cluster.create(1)
    file.produce(range(20))
    file.send(b"{broken", b'{"id":5000,"part":"x"}')
    pipeline = file.write()
    source = loaded(pipeline, pipeline.source_options(), spark.read)
    place = tmp_path / "judged" / "7"
    judge = Judge(pipeline, HadoopFiles(spark), f"{tmp_path}/judged")

    def judged(plan: str = "0-22") -> tuple[int, int, int]:
        with judge.verdict(source, 7, "the query", plan) as verdict:
            return verdict.rows.count(), verdict.dropped.count(), verdict.undecoded.count()

    assert judged() == (20, 1, 1)
    whole = tmp_path / "whole"
    shutil.copytree(place, whole)
    rows, letters = (next(place.glob(f"{each}/*.parquet")) for each in ("rows", "undecoded"))
    note = place / "verdict.json"
    damages: tuple[tuple[Callable[[], object], str], ...] = (
        (rows.unlink, f"{rows} is missing"),
        (letters.unlink, f"{letters} is missing"),
        (lambda: rows.write_bytes(b""), f"{rows} has 0 bytes instead of {rows.stat().st_size}"),
        (
            lambda: shutil.copy(rows, rows.with_name("a.parquet")),
            "rows/a.parquet is not a file of this verdict",
        ),
        (lambda: shutil.rmtree(rows.parent), f"{rows} is missing"),
        (lambda: shutil.rmtree(letters.parent), f"{letters} is missing"),
        (note.unlink, f"{note} is missing"),
        (lambda: note.write_text(""), f"{note} is damaged"),
        (lambda: note.write_text(note.read_text()[:99]), f"{note} is damaged"),
        (lambda: note.write_text("[]"), f"{note} is damaged"),
    )
    for damage, message in [(each, re.escape(text)) for each, text in damages]:
        for ask in (judged, lambda: judge.stream(spark, source.schema)):
            shutil.rmtree(place)
            shutil.copytree(whole, place)
            for checksum in place.rglob(".*.crc"):
                checksum.unlink()
            damage()
            with pytest.raises(
                IllegalStateError, match=f"{message}: put .* or delete {re.escape(str(place))} "
            ):
                ask()
    shutil.rmtree(place)
    shutil.copytree(whole, place)
    with pytest.raises(
        IllegalStateError, match=r"batch 7 is planned with other offsets .* put offsets/7 .* delete"
    ):
        judged("0-30")
    assert judged() == (20, 1, 1)


def test_a_batch_is_known_by_the_offsets_between_which_it_lies(tmp_path: Path) -> None:
    def plan(begin: int, end: int, now: int) -> str:
        for number, offset in ((3, begin), (4, end)):
            text = f'v1\n{{"batchTimestampMs":{now}}}\n{{"t":{{"0":{offset}}}}}'
            LocalFiles().write(f"{tmp_path}/offsets/{number}", text)
        return planned(LocalFiles(), str(tmp_path), 4)

    assert plan(5, 9, 1) == plan(5, 9, 2)
    assert len({plan(5, 9, 1), plan(5, 10, 1), plan(6, 9, 1)}) == 3
    with pytest.raises(IllegalStateError, match="offsets/5 is missing"):
        planned(LocalFiles(), str(tmp_path), 5)


def test_names_and_types_that_files_do_not_take(spark: SparkSession, cluster: Cluster, file: File) -> None:
    """The verdict is kept in files; the sink need not be one."""
    cluster.create(1)
    file.produce(range(3))
    sql = "SELECT id, part AS ID, NULL AS nothing, id AS `a b` FROM records"
    pipeline = file.write(tables=f'[[transform]]\nname = "odd"\nsql = "{sql}"\n')
    judge = Judge(pipeline, HadoopFiles(spark), f"{file.directory}/judged")
    with judge.verdict(loaded(pipeline, pipeline.source_options(), spark.read), 0, "q", "") as verdict:
        assert verdict.rows.columns == ["id", "ID", "nothing", "a b", "_topic", "_partition", "_offset"]
        assert [tuple(row)[:4] for row in verdict.rows.collect()] == [
            (n, f"{n:03}", None, n) for n in range(3)
        ]


def test_what_spark_does_not_tell_is_not_taken_for_zero() -> None:
    class Silent:
        class _jo:  # noqa: N801 - the name of PySpark's own attribute
            @staticmethod
            def future() -> Silent:
                return Silent()

        def isCompleted(self) -> bool:  # noqa: N802 - Scala's name
            return False

    with pytest.raises(IllegalStateError, match="did not report within 0 s how many records"):
        observed(Silent(), within=0)


def test_a_copy_of_the_topic_on_another_cluster(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path
) -> None:
    cluster.create(1)
    file.produce(range(10))
    Run(file.write(), file.environment, spark).run()
    with Broker() as there:
        file.cluster = Cluster(there.bootstrap_servers)
        file.cluster.topic = cluster.topic
        file.cluster.create(1)
        file.produce(range(15))
        moved = file.write()
        with pytest.raises(PipelineError, match="pipeline with --adopt-topic-ids") as caught:
            Run(moved, file.environment, spark).run()
        told = re.search(r"--adopt-topic-ids (\S+)\.", str(caught.value))
        assert told is not None
        Run(moved, file.environment, spark, adopt_topic_ids=told[1]).run()
        assert ids(spark, tmp_path) == list(range(15))
        file.cluster.admin.close()


def test_what_ends_a_run(spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path) -> None:
    cluster.create(1)
    file.produce(range(10))
    strict = file.write(tables=TABLES.replace('"drop"', '"fail"').replace("id < 1000", "id <> 7"))
    with pytest.raises(
        PipelineError, match=rf"^expectation small \(id <> 7\) is not true of {cluster.topic}-0 at offset 7"
    ):
        Run(strict, file.environment, spark).run()
    found = status(LocalFiles(), str(tmp_path / "checkpoint"))
    assert found.state == "failed"
    assert found.progress is not None
    assert "is not true of" in str(found.progress.error)

    # The failed batch is run again, with the file as it is now.
    relaxed = file.write()
    assert Run(relaxed, file.environment, spark).run().rows_out == 10
    assert ids(spark, tmp_path) == list(range(10))

    other_type = file.write(tables=TABLES.replace("id / 2", "id * 2"))
    file.produce(range(10, 12))
    with pytest.raises(PipelineError, match="column half is bigint now, and double in the table"):
        Run(other_type, file.environment, spark).run()

    # Another checkpoint counts its batches from 0 again: it would overwrite them.
    elsewhere = replace(relaxed, checkpoint=f"{tmp_path}/other")
    with pytest.raises(IllegalStateError, match=r"^/.*was written under another checkpoint"):
        Run(elsewhere, file.environment, spark).run()
    assert ids(spark, tmp_path) == list(range(10))

    for sql, message in (
        ("SELECT nothing FROM records", "transform halves: .*nothing"),
        ("SELECT count(*) AS n FROM records", "transform halves loses the column _record"),
        ("SELECT DISTINCT id FROM records", "transform halves loses the column _record"),
    ):
        wrong = file.write(tables=f'[[transform]]\nname = "halves"\nsql = "{sql}"\n')
        with pytest.raises(ConfigError, match=message):
            Run(wrong, file.environment, spark).run()
        (mistake,) = check(read(file.path, {}), file.environment, spark)
        assert mistake.key == "transform[0].sql"
    file.write(
        tables='[[transform]]\nname = "t"\nsql = "SELEC 1"\n[[expect]]\nname = "e"\ncondition = "id >"\n'
    )
    found_sql = check(read(file.path, {}), file.environment, spark)
    assert [each.key for each in found_sql] == ["transform[0].sql", "expect[0].condition"]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_table_of_texts_is_continued(
    spark: SparkSession, cluster: Cluster, file: File, tmp_path: Path, form: str
) -> None:
    """Spark derives other types from such files, or none."""
    cluster.create(1)
    sink = SINK.replace("partition_by", f'format = "{form}"\nheader = true\npartition_by')
    for number in range(2):
        file.produce(range(number * 10, number * 10 + 10))
        assert Run(file.write(sink=sink), file.environment, spark).run().rows_out == 10
    rows = spark.read.format(form).option("header", True).load(f"{tmp_path}/table").select("id").collect()
    assert sorted(int(row.id) for row in rows) == list(range(20))


def test_a_topic_as_sink_and_a_clean_stop(spark: SparkSession, cluster: Cluster, file: File) -> None:
    cluster.create(1)
    file.produce(range(4))
    sink = f'[sink]\ntopic = "{cluster.topic}-out"\nkey = "part"\n'
    pipeline = file.write(top='trigger = "every 50ms"', sink=sink)
    cluster.admin.create_topics({f"{cluster.topic}-out": 1})
    run = Run(pipeline, file.environment, spark, grace=60)

    def stop_when_done() -> None:
        until(lambda: run.progress.rows_out == 4)
        file.produce(range(4, 6))
        until(lambda: run.progress.rows_out == 6)
        run.stop()

    stopper = threading.Thread(target=stop_when_done)
    stopper.start()
    done = run.run()
    stopper.join()
    assert (done.state, done.rows_out) == ("stopped", 6)
    assert done.batch is not None
    found = status(LocalFiles(), str(file.directory / "checkpoint"))
    assert found.committed is not None
    assert found.committed.batch >= done.batch  # the last batch was ended, too
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(f"{cluster.topic}-out", 0)])
        consumer.seek_to_beginning()
        seen: list[Record] = []

        def all_seen() -> bool:
            seen.extend(consumer.poll(0.1))
            return len(seen) >= 6

        until(all_seen, every=0)
    assert [json.loads(each.value or b"") for each in seen] == [
        {"id": number, "part": f"{number % 3:03}", "half": number / 2} for number in range(6)
    ]
    assert [each.key for each in seen] == [f"{number % 3:03}".encode() for number in range(6)]
    with pytest.raises(
        ConfigError, match="a topic keeps what it has, so replay would write its records again"
    ):
        replay(pipeline, file.environment, spark, Wanted.read(cluster.topic, None, "0", None))


def test_files_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark)
    place = f"{tmp_path}/deep/x"
    assert files.read(place) is None
    files.write(place, "öne")
    files.write(place, "two ö")
    assert files.read(place) == LocalFiles().read(place) == "two ö"
    assert files.read(f"{tmp_path}/deep") is None
    files.move(f"{tmp_path}/deep", f"{tmp_path}/a/b")
    assert files.names(f"{tmp_path}/a/b") == ["x"]
    assert files.names(f"{tmp_path}/none") == []
    files.delete(f"{tmp_path}/a")
    assert files.names(f"{tmp_path}/a") == []


def test_an_exchange_of_directories_is_finished_after_a_crash(tmp_path: Path) -> None:
    from kadence_spark.pipeline.directory import recover

    files = LocalFiles()
    for name in ("batch=0", "batch=1", "_replay/new/batch=1", "_replay/new/batch=-1"):
        files.write(f"{tmp_path}/{name}/part", name)
    recover(files, str(tmp_path))  # no journal: what lies aside is not whole
    assert files.names(str(tmp_path)) == ["batch=0", "batch=1"]
    files.write(f"{tmp_path}/_replay/new/batch=-1/part", "new")
    # batch=1 was exchanged before the crash.
    files.write(f"{tmp_path}/_replay/journal.json", '{"directories": ["batch=1", "batch=-1"]}')
    recover(files, str(tmp_path))
    recover(files, str(tmp_path))
    assert files.names(str(tmp_path)) == ["batch=-1", "batch=0", "batch=1"]
    assert files.read(f"{tmp_path}/batch=1/part") == "batch=1"
