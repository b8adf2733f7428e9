"""``consume -o`` and ``produce -i``: what goes to a file comes back, and a file is whole or not there."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run
from tests.patience import PATIENCE
from tests.registry.cases import record
from tests.registry.registry_server import RegistryServer, running

from kadence import Producer, read
from kadence_broker import Broker
from kadence_cli import export, files
from kadence_cli.common import UsageError
from kadence_schemas import AvroSerializer, SchemaRegistryClient

FORMS = ("parquet", "arrow", "csv", "jsonl")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with running() as server:
        yield server


def fill(broker: Broker, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            value = None if number == 1 else b"" if number == 2 else b'{"n": %d, "s": "a,\n\\"b"}' % number
            key = None if number == 3 else b"k%d" % number
            producer.send(
                topic, value, key, timestamp=1_700_000_000_000 + number, headers=[("h", b"x"), ("i", None)]
            )


def rows(broker: Broker, topic: str, *columns: str) -> list[Any]:
    return list(read(topic, columns=columns, bootstrap_servers=broker.bootstrap_servers).to_pylist())


@pytest.mark.parametrize("form", FORMS)
def test_what_goes_to_a_file_comes_back(broker: Broker, kadence: Run, tmp_path: Path, form: str) -> None:
    fill(broker, f"from-{form}", 7)
    file = tmp_path / f"hour.{form}"
    ran = kadence("consume", f"from-{form}", "--to", "6", "-o", str(file))
    assert (ran.status, ran.out, ran.err) == (0, "", f"6 records to {file}\n")
    assert list(tmp_path.iterdir()) == [file]
    ran = kadence("produce", f"to-{form}", "-i", str(file))
    assert (ran.status, ran.err) == (0, f"6 records delivered to to-{form}\n")
    columns = ["key", "value", "timestamp", *(["headers"] if form != "csv" else [])]
    assert rows(broker, f"to-{form}", *columns) == rows(broker, f"from-{form}", *columns)[:6]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_and_a_part(broker: Broker, kadence: Run, tmp_path: Path, form: str) -> None:
    fill(broker, f"part-{form}", 7)
    file = tmp_path / f"part.{form}"
    assert kadence("consume", f"part-{form}", "--from", "latest", "-o", str(file)).status == 0
    assert (
        kadence("produce", f"part-to-{form}", "-i", str(file)).err
        == f"0 records delivered to part-to-{form}\n"
    )
    # It takes the place of the file that was there.
    assert kadence("consume", f"part-{form}", "-n", "2", "-o", str(file)).err == f"2 records to {file}\n"
    assert kadence("produce", f"part-to-{form}", "-i", str(file), "--offsets").out.count("\n") == 2


def test_parquet_for_others(broker: Broker, kadence: Run, tmp_path: Path) -> None:
    fill(broker, "others", 4)
    assert kadence("consume", "others", "-o", str(tmp_path / "data"), "--format", "parquet").status == 0
    table = pq.read_table(tmp_path / "data")
    assert table.column_names == list(export.columns_written("parquet"))
    assert table["timestamp"][0].as_py() == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert table["offset"].to_pylist() == [0, 1, 2, 3]


def test_many_tables_become_few_groups_and_all_rows(
    broker: Broker, kadence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_GROUP_BYTES", 600)
    fill(broker, "groups", 40)
    file = tmp_path / "g.parquet"
    assert kadence("consume", "groups", "-o", str(file), "-X", "max.poll.arrow.bytes=1").status == 0
    assert pq.read_table(file)["offset"].to_pylist() == list(range(40))
    assert 1 < pq.ParquetFile(file).num_row_groups < 40


def test_aborted_records_are_left_out(broker: Broker, kadence: Run, tmp_path: Path) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="files") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send("atomic", b"%d" % number).result(PATIENCE)
            producer.commit_transaction() if number % 2 else producer.abort_transaction()
    for more, expected in (((), 2), (("-X", "isolation.level=read_uncommitted"), 4)):
        for form in FORMS:
            ran = kadence("consume", "atomic", "-o", str(tmp_path / f"a.{form}"), *more)
            assert ran.err.startswith(f"{expected} records to "), form


def test_values_with_a_schema(
    broker: Broker, kadence: Run, tmp_path: Path, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KADENCE_SCHEMA_REGISTRY", registry.url)
    client = SchemaRegistryClient(registry.url)
    schema = record("Order", ("id", "int"))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("avro", AvroSerializer(client, schema).serialize("avro", (), {"id": number}))
    file = tmp_path / "a.parquet"
    assert kadence("consume", "avro", "--value", "avro", "-o", str(file)).status == 0
    assert pq.read_table(file)["value"].to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]
    (tmp_path / "order.avsc").write_text(schema)
    ran = kadence("produce", "back", "-i", str(file), "--value-schema", str(tmp_path / "order.avsc"))
    assert ran.status == 0
    assert rows(broker, "back", "value") == rows(broker, "avro", "value")
    # Fields that come later, in another table.
    more = AvroSerializer(client, record("Order", ("id", "int"), ("note", "string")))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("avro", more.serialize("avro", (), {"id": 3, "note": "x"}))
    monkeypatch.setattr(export, "_GROUP_BYTES", 1)
    ran = kadence("consume", "avro", "--value", "avro", "-o", str(file), "-X", "max.poll.arrow.bytes=1")
    assert ran.status == 1
    assert "values from avro:0, offset 3 on have new fields" in ran.err
    assert pq.read_table(file).num_rows == 3
    # As it says: two files, or lines.
    for name, range_, count in (
        ("before.parquet", ("--to", "3"), 3),
        ("after.parquet", ("--from", "3"), 1),
        ("all.jsonl", (), 4),
    ):
        ran = kadence("consume", "avro", "--value", "avro", "-o", str(tmp_path / name), *range_)
        assert (ran.status, ran.err.startswith(f"{count} record")) == (0, True), ran.err
    for name, kind, said in (
        ("a.csv", "avro", "no columns of structs"),
        ("a.arrow", "json-schema", "write .jsonl"),
    ):
        ran = kadence("consume", "avro", "--value", kind, "-o", str(tmp_path / name))
        assert (ran.status, said in ran.err) == (2, True)


def test_rows_without_a_value_are_documents(broker: Broker, kadence: Run, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None]),
            "raw": [b"x", b"\xff"],
            "nested": [{"a": [1.5, None]}, None],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert kadence("produce", "docs", "-i", str(tmp_path / "t.parquet"), "--key", "id").status == 0
    found = rows(broker, "docs", "key", "value")
    assert [row["key"] for row in found] == [b"1", b"2"]
    assert [json.loads(row["value"]) for row in found] == [
        {"id": 1, "at": "2026-01-01T00:00:00+00:00", "raw": "x", "nested": {"a": [1.5, None]}},
        {"id": 2, "at": None, "raw": {"base64": "/w=="}, "nested": None},
    ]
    (tmp_path / "t.csv").write_text('id,name,price\n1,"a,\nb",2.5\n2,,\n')
    assert kadence("produce", "cells", "-i", str(tmp_path / "t.csv")).status == 0
    assert [json.loads(row["value"]) for row in rows(broker, "cells", "value")] == [
        {"id": 1, "name": "a,\nb", "price": 2.5},
        {"id": 2, "name": None, "price": None},
    ]


def test_parts_of_other_types(broker: Broker, kadence: Run, tmp_path: Path) -> None:
    broker.create_topic("parts", 2)
    table = pa.table(
        {
            "key": pa.array(["a", "b"]).dictionary_encode(),
            "value": pa.array([{"n": 1}, None]),
            "partition": pa.array([1, 0], pa.int64()),
            "timestamp": pa.array([5000, 6000], pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    assert kadence("produce", "parts", "-i", str(tmp_path / "p.parquet")).status == 0
    assert sorted(rows(broker, "parts", "partition", "key", "value"), key=lambda row: row["partition"]) == [
        {"partition": 0, "key": b"b", "value": None},
        {"partition": 1, "key": b"a", "value": b'{"n":1}'},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value,color\n1,a\n", "a column 'color' beside value"),
        ("value,partition\n1,0\n2,x\n", "row 2, column partition: "),
        ("value,timestamp\n1,2026-01-01T00:00:00Z\n2,2026-01-01\n", "row 2, column timestamp: "),
        ('value,key\n"1\n2",7\n1,7,8\n', "line 4, cannot be read: "),
        (
            "value,partition\n1,0\n1,7\n",
            "row 1: topic 'wrong' has 1 partition, 0; 7 is none of them\n  row 0 of it is row 1 of",
        ),
        ("a,a\n1,2\n", "two columns have one name"),
        ("", "cannot be read: Empty CSV file"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_row(
    broker: Broker, kadence: Run, tmp_path: Path, text: str, said: str
) -> None:
    broker.create_topic("wrong", 1)
    (tmp_path / "w.csv").write_text(text)
    ran = kadence("produce", "wrong", "-i", str(tmp_path / "w.csv"))
    assert (ran.status, said in ran.err) == (1, True), ran.err


def test_other_files_that_cannot_be_read(kadence: Run, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")
    (tmp_path / "x.jsonl").write_text('{"value":1}\n{"valeu":2}\n')
    naive = pa.table({"value": ["x"], "timestamp": pa.array([datetime(2026, 1, 1)])})  # noqa: DTZ001
    pq.write_table(naive, tmp_path / "naive.parquet")
    for name, more, status, said in (
        ("x.parquet", (), 1, "x.parquet cannot be read: "),
        ("x.jsonl", (), 1, "line 2: "),
        ("naive.parquet", (), 1, "row 1, column timestamp: the times have no zone"),
        ("naive.parquet", ("--key", "value"), 2, "--key is for files whose rows are documents"),
        ("missing.arrow", (), 1, "missing.arrow: No such file or directory"),
        ("missing.jsonl", (), 1, "missing.jsonl: No such file or directory"),
        ("x.xyz", (), 2, "name it with --format"),
        ("x.jsonl", ("--key", "k"), 2, "--key needs --format json"),
    ):
        ran = kadence("produce", "wrong", "-i", str(tmp_path / name), *more)
        assert (ran.status, said in ran.err) == (status, True), ran.err


def test_a_text_that_is_none_does_not_go_to_csv(broker: Broker, kadence: Run, tmp_path: Path) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("bytes", b"x")
        producer.send("bytes", b"\xff")
    ran = kadence("consume", "bytes", "-o", str(tmp_path / "b.csv"))
    assert (ran.status, list(tmp_path.iterdir())) == (1, [])
    assert "the value of bytes:0 at offset 1 is not UTF-8" in ran.err


def test_wrong_command_lines(kadence: Run, tmp_path: Path) -> None:
    for options, said in (
        (("-o", "x.csv", "--group", "g"), "-o reads without a group"),
        (("-o", "x.unknown"), "name it with --format"),
        (("--format", "csv"), "--format csv is for a file: give -o FILE"),
        (("-o", "x.csv", "--stats", "1"), "--stats is for lines"),
    ):
        ran = kadence("consume", "t", *options)
        assert (ran.status, said in ran.err) == (2, True), ran.err
    assert "--format csv is for a file: give -i FILE" in kadence("produce", "t", "--format", "csv").err


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_leaves_what_was_there(
    broker: Broker, kadence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    fill(broker, f"full-{form}", 3)
    file = tmp_path / f"full.{form}"
    file.write_text("before")

    class Full:
        """A file on a disk that has no more room."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, *given, **named: (
            _Opened(Full, opened(path, *given, **named))
            if path.suffix == ".part"
            else opened(path, *given, **named)
        ),
    )
    ran = kadence("consume", f"full-{form}", "-o", str(file))
    assert (ran.status, ran.err) == (
        1,
        f"kadence consume: {file}: No space left on device; nothing of it was kept\n",
    )
    monkeypatch.undo()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(file.name, "before")]


class _Opened:
    """A file's context with another face."""

    def __init__(self, face: Any, file: Any) -> None:
        self._face = face
        self._file = file

    def __enter__(self) -> Any:
        return self._face(self._file.__enter__())

    def __exit__(self, *given: object) -> None:
        self._file.__exit__(*given)


def test_the_file_that_stdout_goes_into_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `kadence consume orders -o /dev/stdout --format csv > all.csv`."""
    out = tmp_path / "all.csv"
    out.write_text("before")
    there = out.stat()
    monkeypatch.setattr("os.fstat", lambda descriptor: there)
    with pytest.raises(UsageError, match="stdout"), files.whole_file(str(out)):
        pass
    assert out.read_text() == "before"


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no regular file"), files.whole_file("/dev/null"):
        pass

    def interrupted() -> None:
        with files.whole_file(str(tmp_path / "x")) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    # A link stays one.
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with files.whole_file(str(tmp_path / "link")) as file:
        file.write(b"whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("lacking", "words", "said"),
    [
        ("pyarrow", "produce t -i rows.csv", "pyarrow is not installed: pip install 'kadence[arrow]'"),
        (
            "google.protobuf",
            "produce t --value protobuf --value-schema rows.csv --schema-registry http://localhost:1",
            "protobuf is not installed: pip install 'kadence[protobuf]'",
        ),
    ],
)
def test_a_package_that_only_some_commands_need(
    kadence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str, words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("key,value\na,b\n")
    kadence("topics", "create", "t")
    monkeypatch.setitem(sys.modules, lacking, None)
    ran = kadence(*words.split())
    assert (ran.status, ran.err) == (1, f"kadence {words.split(maxsplit=1)[0]}: {said}\n")
