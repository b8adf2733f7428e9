"""Both libraries behind the sink's port, without Spark: what is written is read back by DuckDB."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.lakehouse.conftest import Lake, needs

from kadence.errors import ConfigError, IllegalStateError, MissingDependencyError, SerializationError
from kadence_spark.lakehouse.commit import ConflictError, RefusedError, commit_once
from kadence_spark.lakehouse.task import write_rows
from kadence_spark.stamp import Stamp

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "city": ["Bonn", None, "Köln"]})

AT = dt.datetime(2024, 2, 29, 12, 30, 0, 123456)  # noqa: DTZ001 - a local time
WIDE = pa.schema(
    [
        ("yes", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("id", pa.int64()),
        ("half", pa.float32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("lat", pa.float64()), ("seen", pa.timestamp("us", "UTC"))])),
    ]
)
WIDE_ROW: dict[str, Any] = {
    "yes": True,
    "tiny": -1,
    "small": 300,
    "id": 2**40,
    "half": 0.5,
    "text": "a/b c%=ü",
    "raw": b"\0\xff",
    "day": AT.date(),
    "at": AT.replace(tzinfo=dt.UTC),
    "local": AT,
    "price": Decimal("12.50"),
    "tags": ["x", None],
    "counts": [("a", 1)],
    "place": {"lat": 1.5, "seen": AT.replace(tzinfo=dt.UTC)},
}


def test_a_batch_that_comes_again_is_there_once(lake: Lake) -> None:
    assert lake.add(ROWS, Stamp("q", 0))
    assert not lake.add(ROWS, Stamp("q", 0))
    assert lake.add(ROWS.slice(0, 1), Stamp("q", 1))
    assert lake.add(ROWS.slice(0, 1), Stamp("r", 0))
    assert lake.rows() == [(1, "Bonn"), (1, "Bonn"), (1, "Bonn"), (2, None), (3, "Köln")]
    assert lake.opened().last_batch("q") == 1
    assert lake.opened().last_batch("nobody") is None


def test_maintenance_does_not_forget_the_batch(lake: Lake) -> None:
    """Delta's log cut off behind a checkpoint, Iceberg's snapshots expired."""
    for batch in range(3):
        lake.add(ROWS, Stamp("q", batch))
    table = lake.table
    if lake.kind == "delta":
        table.create_checkpoint()
        for old in Path(table.table_uri, "_delta_log").glob("*.json"):
            old.unlink()
        table = lake.table
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    else:
        history = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.maintenance.expire_snapshots().by_ids(history[:-1]).commit()
        assert len(lake.table.snapshots()) == 1
    assert not lake.add(ROWS, Stamp("q", 2))
    assert len(lake.rows()) == 9


def test_two_drivers_with_the_same_batch(lake: Lake) -> None:
    """The second one opened the table before the first one committed."""
    first, second = lake.files(ROWS), lake.files(ROWS)
    late = lake.opened()
    assert lake.commit(first, Stamp("q", 0))
    with pytest.raises(ConflictError):
        late.commit(second, Stamp("q", 0), overwrite=False)
    assert not lake.commit(second, Stamp("q", 0))
    assert len(lake.rows()) == 3


def test_a_commit_that_others_were_faster_than_is_made_again(lake: Lake) -> None:
    files = lake.files(ROWS)
    lake.add(ROWS.slice(0, 1), Stamp("other", 0))
    late = [lake.opened()]
    lake.add(ROWS.slice(1, 1), Stamp("other", 1))

    def opened() -> Any:
        return late.pop() if late else lake.opened()

    assert commit_once(opened, files, Stamp("q", 0), wait=lambda seconds: None)
    assert [row[0] for row in lake.rows()] == [1, 1, 2, 2, 3]


def test_every_type_comes_back(lake: Lake) -> None:
    null = dict.fromkeys(WIDE_ROW)
    lake.add(pa.Table.from_pylist([WIDE_ROW, null], schema=WIDE))
    found = lake.rows()
    assert tuple(null.values()) in found
    (full,) = [row for row in found if row[0]]
    expected = WIDE_ROW | {"counts": {"a": 1}}
    assert dict(zip(WIDE.names, full, strict=True)) == expected
    # What the libraries themselves read, by the table's schema and not by the files'.
    assert lake.kind == "iceberg" or lake.table.to_pyarrow_table().num_rows == 2
    assert lake.kind == "delta" or lake.table.scan().to_arrow().num_rows == 2


def test_overwriting_replaces_what_is_there(lake: Lake) -> None:
    assert lake.add(ROWS, overwrite=True)
    assert lake.add(ROWS.slice(0, 1), Stamp("q", 3), overwrite=True)
    assert lake.rows() == [(1, "Bonn")]
    assert not lake.add(ROWS, Stamp("q", 3), overwrite=True)
    assert lake.rows() == [(1, "Bonn")]


def test_partitions(lake: Lake) -> None:
    odd = pa.table(
        {"id": [1, 2, 3, 4], "city": ["a/b c%=ü", None, "a/b c%=ü", "2024"], "n": pa.array([1, 1, 1, 2])}
    )
    lake.add(odd, partitionBy="city,n")
    assert len(lake.paths()) == 3
    lake.add(odd)
    if lake.kind == "delta":
        found = lake.table.to_pyarrow_table(filters=[("city", "=", "a/b c%=ü")])
    else:
        found = lake.table.scan(row_filter="city = 'a/b c%=ü'").to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 1, 3, 3]
    with pytest.raises(ConfigError, match="partitionBy: the table is partitioned by"):
        lake.add(odd, partitionBy="city")


def test_an_empty_text_is_no_value_of_a_delta_partition_that_must_not_be_null(tmp_path: Path) -> None:
    """Delta has no empty text there, and would have null in its place."""
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    schema = pa.schema([pa.field("city", pa.string(), nullable=False), pa.field("n", pa.int64())])
    lake.add(pa.table({"city": ["Oslo"], "n": [1]}, schema=schema), partitionBy="city")
    with pytest.raises(SerializationError, match="column city of the table must not be null"):
        lake.add(pa.table({"city": [""], "n": [2]}, schema=schema))
    assert lake.rows("n") == [(1,)]


def test_zeros_and_nan_in_a_floating_column_that_partitions_an_iceberg_table(tmp_path: Path) -> None:
    """PyIceberg by itself writes each row of 0.0 and -0.0 twice, and fails at NaN with an error of arithmetic."""
    needs("pyiceberg")
    lake = Lake("iceberg", tmp_path)
    values = [0.0, -0.0, None, 1.5, -0.0, -2.5]
    lake.add(
        pa.table({"id": range(6), "measure": values, "other": values[::-1]}), partitionBy="measure,other"
    )
    found = lake.table.scan().to_arrow().sort_by("id").to_pylist()
    assert str([row["measure"] for row in found]) == str(values)
    assert str([row["other"] for row in found]) == str(values[::-1])
    with pytest.raises(IllegalStateError, match=r"a row whose measure, .* is NaN"):
        lake.add(pa.table({"id": [7], "measure": [float("nan")], "other": [1.0]}))
    assert lake.table.scan().to_arrow().num_rows == 6


def test_readers_may_trust_the_bounds_of_files(lake: Lake) -> None:
    """A file is left out by its bounds; none that has rows may be."""
    for number in range(3):
        row = {**WIDE_ROW, "id": number, "text": "x" * (60 + 10 * number)}
        row["day"] = dt.date(2024 + number, 2, 28)
        row["at"] = dt.datetime(2024 + number, 1, 1, 0, 0, 0, 999_999, tzinfo=dt.UTC)
        lake.add(pa.Table.from_pylist([row], schema=WIDE))
    lake.add(pa.Table.from_pylist([{"id": 7}], schema=WIDE))
    at, day = dt.datetime(2025, 1, 1, 0, 0, 0, 999_999, tzinfo=dt.UTC), dt.date(2025, 2, 28)
    if lake.kind == "delta":
        import pyarrow.dataset as ds

        table = lake.table.to_pyarrow_dataset()
        for condition in (ds.field("at") == at, ds.field("day") == day, ds.field("text") == "x" * 70):
            assert table.to_table(filter=condition)["id"].to_pylist() == [1]
        assert table.to_table(filter=ds.field("text").is_null())["id"].to_pylist() == [7]
        assert table.to_table(filter=ds.field("half") == 0.5).num_rows == 3
        assert (
            table.to_table(
                filter=ds.field("price") == pa.scalar(Decimal("12.50"), pa.decimal128(12, 2))
            ).num_rows
            == 3
        )
    else:
        for condition in (f"at = '{at.isoformat()}'", f"day = '{day}'", f"text = '{'x' * 70}'"):
            assert lake.table.scan(row_filter=condition).to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("price", ["0.00000001", "-0.00000001", "0.0001", "0", "1234.00000001"])
def test_a_delta_reader_finds_small_decimals(tmp_path: Path, price: str) -> None:
    """JSON writes 0.00001 as 1e-05. In a decimal's bound deltalake reads that as null, and leaves the file out."""
    import pyarrow.dataset as ds

    needs("deltalake")
    lake = Lake("delta", tmp_path)
    prices = pa.array([Decimal(price)], pa.decimal128(12, 8))
    lake.add(pa.table({"price": prices}))
    table = lake.table.to_pyarrow_dataset()
    for condition in (ds.field("price") == prices[0], ds.field("price") <= prices[0]):
        assert table.to_table(filter=condition)["price"] == pa.chunked_array([prices])
    far = pa.scalar(Decimal(9000), pa.decimal128(12, 8))
    assert not table.to_table(filter=ds.field("price") > far).num_rows


@pytest.mark.parametrize("measures", [[0.0, -0.0], [-0.0, 0.0], [0.0], [-0.0]], ids=str)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_a_delta_reader_finds_zeros_of_both_signs(
    tmp_path: Path, measures: list[float], kind: pa.DataType
) -> None:
    """Arrow takes one of them for both bounds, and DataFusion orders them."""
    needs("deltalake")
    import deltalake

    lake = Lake("delta", tmp_path)
    lake.add(pa.table({"measure": pa.array(measures, kind)}))
    (bounds,) = lake.table.get_add_actions(flatten=True).to_struct_array().to_pylist()
    assert str((bounds["min.measure"], bounds["max.measure"])) == "(-0.0, 0.0)"
    found = deltalake.QueryBuilder().register("t", lake.table)
    (count,) = pa.table(found.execute("SELECT count(*) AS n FROM t WHERE measure <= 0").read_all())["n"]
    assert count.as_py() == len(measures)


def test_a_relative_path_is_one_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a cluster has a directory of its own: its files would not be those that the table names."""
    needs("deltalake")
    for name in ("driver", "worker"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "driver")
    lake = Lake("delta", Path())
    assert lake.options["path"] == "table"
    writer = lake._library.prepared(lake.parsed(), ROWS.schema)
    monkeypatch.chdir(tmp_path / "worker")
    files = write_rows(iter(ROWS.to_batches()), writer)
    monkeypatch.chdir(tmp_path / "driver")
    lake.commit(files)
    assert len(lake.rows()) == 3
    assert not list((tmp_path / "worker").iterdir())


@pytest.mark.parametrize("days", [2**30, -800_000])
def test_a_date_beyond_the_calendar_partitions_no_delta_table(tmp_path: Path, days: int) -> None:
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    far = pa.table({"id": [1, 2], "day": pa.array([0, days], pa.int32()).cast(pa.date32())})
    with pytest.raises(SerializationError, match="is before the year 1 or after 9999"):
        lake.add(far, partitionBy="day")
    assert not list(tmp_path.rglob("*.parquet"))


def test_columns_that_the_table_lacks(lake: Lake) -> None:
    lake.add(ROWS, Stamp("q", 0))
    wider = ROWS.append_column("zip", pa.array(["53111", "50667", None]))
    with pytest.raises(ConfigError, match=r"no column zip: .* mergeSchema=true"):
        lake.add(wider, Stamp("q", 1))
    assert lake.add(wider, Stamp("q", 1), mergeSchema="true")
    assert lake.add(ROWS.select(["id"]), Stamp("q", 2))
    ids, cities, zips = (1, 2, 3), ("Bonn", None, "Köln"), ("53111", "50667", None)
    nothing = (None, None, None)
    batches = ((cities, nothing), (cities, zips), (nothing, nothing))
    wanted = [row for batch in batches for row in zip(ids, *batch, strict=True)]
    assert lake.rows("id, city, zip") == sorted(wanted, key=str)


def nested(**fields: pa.DataType) -> pa.Schema:
    inner = pa.struct(list(fields.items()))
    return pa.schema(
        [("id", pa.int64()), ("addr", inner), ("all", pa.list_(inner)), ("by", pa.map_(pa.string(), inner))]
    )


def nested_row(number: int, **values: Any) -> dict[str, Any]:
    return {"id": number, "addr": values, "all": [values, None], "by": [("k", values)]}


def test_nested_fields_that_come_go_move_and_grow(lake: Lake) -> None:
    old, new = (
        nested(city=pa.string(), zip=pa.int64()),
        nested(land=pa.string(), zip=pa.int32(), city=pa.string()),
    )
    lake.add(pa.Table.from_pylist([nested_row(1, city="Bonn", zip=5)], schema=old))
    # A task of before has written its files, and commits them after the table has changed.
    early = lake.files(pa.Table.from_pylist([nested_row(2, city="Ulm", zip=6)], schema=old))
    lake.add(
        pa.Table.from_pylist([nested_row(3, land="DE", zip=7, city="Köln")], schema=new), mergeSchema="true"
    )
    assert lake.commit(early)
    lake.add(pa.Table.from_pylist([nested_row(4, zip=8)], schema=nested(zip=pa.int32())))
    known = {
        1: {"city": "Bonn", "zip": 5, "land": None},
        2: {"city": "Ulm", "zip": 6, "land": None},
        3: {"city": "Köln", "zip": 7, "land": "DE"},
        4: {"city": None, "zip": 8, "land": None},
    }
    for row in read_back(lake):
        value = known[row["id"]]
        assert row["addr"] == value
        assert row["all"] == [value, None]
        assert dict(row["by"]) == {"k": value}


@pytest.mark.parametrize("size", [8, 300])
def test_nulls_and_what_is_empty_stay_apart(lake: Lake, size: int) -> None:
    """PyIceberg 0.12 by itself writes [] for a null list of structs, and {} for a null map to them."""
    inner = pa.struct([("a", pa.int64()), ("more", pa.list_(pa.struct([("b", pa.string())])))])
    kinds = {
        "id": pa.int64(),
        "all": pa.list_(inner),
        "by": pa.map_(pa.string(), inner),
        "deep": pa.struct([("all", pa.list_(inner)), ("by", pa.map_(pa.string(), pa.list_(inner)))]),
    }
    values: list[Any] = [
        None,
        [],
        [None],
        [{"a": 1, "more": None}],
        [{"a": None, "more": []}, None],
        [{"a": 2, "more": [None]}],
        [{"a": 3, "more": [{"b": None}, {"b": "x"}]}],
    ]
    rows = []
    for number in range(size):
        value, other = values[number % 7], values[number * 3 % 7]
        pairs = None if value is None else [(str(place), each) for place, each in enumerate(value)]
        deep = None if number % 5 == 0 else {"all": other, "by": None if number % 3 else [("k", value)]}
        rows.append({"id": number, "all": value, "by": pairs, "deep": deep})
    whole = pa.Table.from_pylist(rows, schema=pa.schema(kinds))
    lake.add(whole.slice(0, 3))
    lake.add(pa.concat_tables([whole.slice(3, 2), whole.slice(5)]))
    files = [pq.read_table(path, partitioning=None) for path in lake.paths()]
    found = pa.concat_tables(each.cast(whole.schema) for each in files).sort_by("id")
    assert found.to_pylist() == whole.to_pylist()


def test_types_that_grow(lake: Lake) -> None:
    """Iceberg's own rule of ints to longs; Delta's library cannot do it."""
    lake.add(pa.table({"n": pa.array([1], pa.int32())}))
    wide = pa.table({"n": pa.array([2**40], pa.int64())})
    if lake.kind == "delta":
        with pytest.raises(
            ConfigError, match="column n is int64 in the rows and int32 in the table: cast it"
        ):
            lake.add(wide, mergeSchema="true")
        return
    lake.add(wide, mergeSchema="true")
    assert sorted(row["n"] for row in read_back(lake)) == [1, 2**40]


def read_back(lake: Lake) -> list[dict[str, Any]]:
    """The rows by the table's own library, which knows the schemas of all its files."""
    if lake.kind == "delta":
        import deltalake

        found = deltalake.DeltaTable(lake.options["path"]).to_pyarrow_table()
    else:
        found = lake.table.scan().to_arrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("same", [True, False], ids=["the same column", "columns of their own"])
def test_writers_that_add_columns_at_once(lake: Lake, same: bool) -> None:
    """Each finds that another was faster, and looks at what is still missing."""
    lake.add(ROWS)
    at_once = Barrier(4)

    def write(number: int) -> bool:
        name = "more" if same else f"more{number}"
        at_once.wait()
        return lake.add(ROWS.append_column(name, pa.array([number] * 3)), mergeSchema="true")

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(4)))
    rows = read_back(lake)
    assert len(rows) == 15
    names = ["more"] if same else [f"more{number}" for number in range(4)]
    assert sorted(row[name] for row in rows for name in names if row[name] is not None) == sorted(
        [0, 1, 2, 3] * 3
    )


def test_a_column_of_another_type_is_refused(lake: Lake) -> None:
    lake.add(ROWS)
    with pytest.raises(ConfigError, match=r"column id is string in the rows and int64 in the table: cast it"):
        lake.add(pa.table({"id": ["1"], "city": ["Bonn"]}))
    lake.add(pa.table({"id": pa.array([7], pa.int32())}))
    assert (7, None) in lake.rows()


def test_a_failing_task_takes_its_files_with_it(lake: Lake) -> None:
    writer = lake._library.prepared(lake.parsed(), ROWS.schema)

    def breaking() -> Any:
        yield from ROWS.to_batches()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_rows(breaking(), writer, chunk_bytes=1)
    assert not [path for path in lake.directory.rglob("*.parquet") if path.stat().st_size]


def test_a_large_task_writes_several_files(lake: Lake) -> None:
    writer = lake._library.prepared(lake.parsed(), ROWS.schema)
    files = write_rows(iter(ROWS.to_batches() * 3), writer, chunk_bytes=2 * ROWS.nbytes)
    assert len(files) == 2
    lake.commit(files)
    assert len(lake.rows()) == 9


@pytest.mark.parametrize(("kind", "module"), [("delta", "deltalake"), ("iceberg", "pyiceberg.catalog")])
def test_a_missing_library_is_told_in_one_sentence(
    kind: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"format 'kadence-{kind}' needs .*kadence\[{kind}\]"):
        Lake(kind, tmp_path).add(ROWS)


def test_what_the_library_says_has_no_setting_in_it(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    options = lake.parsed(**{"catalog.uri": "postgresql+nodriver://u:secret-word@nowhere/db"})
    assert "secret" not in repr(options)
    with pytest.raises(IllegalStateError) as caught:
        lake._library.prepared(options, ROWS.schema)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("configuration", "metadata", "said"),
    [
        ({"delta.enableRowTracking": "true"}, {}, "row tracking"),
        (
            {"delta.columnMapping.mode": "name"},
            {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c"},
            "column mapping",
        ),
        ({"delta.constraints.positive": "id > 0"}, {}, "CHECK constraints"),
        ({}, {"delta.generationExpression": "1"}, "column id of the table is generated"),
    ],
)
def test_delta_tables_that_ask_more_of_their_writers_are_refused(
    tmp_path: Path, configuration: dict[str, str], metadata: dict[str, Any], said: str
) -> None:
    needs("deltalake")
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    field = {"name": "id", "type": "long", "nullable": True, "metadata": metadata}
    meta = {"id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    meta |= {
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "configuration": configuration,
    }
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": meta}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    lake = Lake("delta", tmp_path)
    with pytest.raises(ConfigError, match=said):
        lake._library.prepared(lake.parsed(), pa.schema([("id", pa.int64())]))


def with_features(lake: Lake, *features: str, **configuration: str) -> None:
    """Say in the table's log that its writers need these features."""
    log = Path(lake.options["path"]) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            both = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"}
            read = [each for each in features if each in both]
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
            action["protocol"] |= {"readerFeatures": read, "writerFeatures": list(features)}
        if "metaData" in action:
            action["metaData"]["configuration"] = configuration
    log.write_text("\n".join(map(json.dumps, actions)))


def parquet_files(lake: Lake) -> set[Path]:
    return set(Path(lake.options["path"]).rglob("*.parquet"))


@pytest.mark.parametrize(
    "feature",
    ["clustering", "domainMetadata", "identityColumns", "inCommitTimestamp", "rowTracking", "typeWidening", "new"],
)  # fmt: skip
def test_delta_features_that_the_library_cannot_write_are_named_before_a_file_is(
    tmp_path: Path, feature: str
) -> None:
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    lake.add(ROWS.slice(0, 0))
    with_features(lake, feature, "appendOnly")
    with pytest.raises(
        ConfigError, match=f"the table has the writer feature {feature}, which this sink cannot"
    ):
        lake.files(ROWS)
    assert parquet_files(lake) == set()


def test_delta_features_that_an_append_keeps_up(tmp_path: Path) -> None:
    from kadence_spark.lakehouse.delta import _FEATURES

    needs("deltalake")
    for place, feature in enumerate(sorted(_FEATURES)):
        if feature == "columnMapping":  # of a table with a mode, which is refused by its property
            continue
        lake = Lake("delta", tmp_path / str(place))
        lake.directory.mkdir()
        lake.add(ROWS.slice(0, 0))
        with_features(lake, feature)
        lake.add(ROWS)
        assert len(parquet_files(lake)) == 1, feature


def test_a_delta_table_whose_rows_cannot_be_replaced(tmp_path: Path) -> None:
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    lake.add(ROWS.slice(0, 0))
    with_features(lake, "appendOnly", **{"delta.appendOnly": "true"})
    lake.add(ROWS)
    before = parquet_files(lake)
    with pytest.raises(RefusedError, match="the table is append-only"):
        lake.add(ROWS, overwrite=True)
    assert parquet_files(lake) == before


def test_a_commit_that_fails_although_nobody_changed_the_table_is_not_repeated(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the library refuses for good has the same error as a conflict, and the files of the batch go."""
    lake.add(ROWS)
    files = lake.files(ROWS)
    before, tries = lake.rows(), []
    if lake.kind == "delta":
        import deltalake
        from deltalake.exceptions import CommitFailedError

        def refuse(*_: Any, **__: Any) -> None:
            tries.append(1)
            raise CommitFailedError("no such thing")

        monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", refuse)
    else:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import Transaction

        def refuse(*_: Any, **__: Any) -> None:
            tries.append(1)
            raise CommitFailedException("no such thing")

        monkeypatch.setattr(Transaction, "commit_transaction", refuse)
    with pytest.raises(RefusedError, match="no such thing"):
        lake.commit(files)
    assert len(tries) == 1
    monkeypatch.undo()
    assert lake.rows() == before
    assert not any(path.exists() for path in written_files(lake, files))


def written_files(lake: Lake, files: list[Any]) -> list[Path]:
    if lake.kind == "delta":
        return [Path(lake.options["path"]) / each.path for each in files]
    return [Path(each.data.file_path.removeprefix("file://")) for each in files]


def test_a_table_of_others_with_transforms(tmp_path: Path) -> None:
    needs("pyiceberg")
    needs("duckdb")
    lake = Lake("iceberg", tmp_path)
    lake.add(ROWS.slice(0, 0))
    with lake.table.update_spec() as change:
        change.add_field("id", "bucket[4]", "place")
        change.add_field("city", "truncate[1]", "letter")
    lake.add(ROWS)
    assert len(lake.rows()) == 3
    assert len(lake.paths()) > 1
    assert lake.table.scan(row_filter="city = 'Bonn'").to_arrow()["id"].to_pylist() == [1]


def test_a_partitioning_that_changes_in_the_midst_of_a_batch_is_told(tmp_path: Path) -> None:
    needs("pyiceberg")
    lake = Lake("iceberg", tmp_path)
    files = lake.files(ROWS)
    with lake.table.update_spec() as change:
        change.add_identity("city")
    with pytest.raises(IllegalStateError, match="its partitioning changed"):
        lake.commit(files)


def test_a_table_that_is_made_anew_in_the_midst_of_a_batch_is_told(lake: Lake) -> None:
    files = lake.files(ROWS)
    if lake.kind == "delta":
        shutil.rmtree(lake.options["path"])
    else:
        lake.table.catalog.drop_table("shop.orders")
    lake.add(ROWS)
    with pytest.raises(IllegalStateError, match="the table was replaced"):
        lake.commit(files)
    assert len(lake.rows()) == 3


@pytest.mark.parametrize(
    ("rows", "partition_by"),
    [
        (ROWS, ["city"]),
        (ROWS.set_column(0, "id", pa.array(["1", "2", "3"])), []),
        (ROWS.select(["city"]), []),
        (ROWS.append_column(pa.field("n", pa.int64(), nullable=False), pa.array([1, 2, 3])), []),
    ],
)
def test_delta_columns_that_change_in_the_midst_of_a_batch_are_told(
    tmp_path: Path, rows: pa.Table, partition_by: list[str]
) -> None:
    needs("deltalake")
    import deltalake

    lake = Lake("delta", tmp_path)
    files = lake.files(ROWS)
    deltalake.write_deltalake(
        lake.options["path"],
        rows,
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=partition_by or None,
    )
    with pytest.raises(IllegalStateError, match="or its columns or partitioning changed"):
        lake.commit(files)


def test_a_delta_column_that_another_writer_adds_meanwhile_does_no_harm(tmp_path: Path) -> None:
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    files = lake.files(ROWS)
    lake.add(ROWS.append_column("more", pa.array([1, 2, 3])), mergeSchema="true")
    assert lake.commit(files)
    assert len(lake.rows()) == 6


def test_another_writer_may_make_the_table_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    create = SqlCatalog.create_table_transaction

    def overtaken(*given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        made = create(*given, **more)
        Lake("iceberg", tmp_path).files(ROWS)
        return made

    monkeypatch.setattr(SqlCatalog, "create_table_transaction", overtaken)
    lake = Lake("iceberg", tmp_path)
    assert lake.add(ROWS)
    assert len(lake.rows()) == 3


def test_a_column_that_must_not_be_null(tmp_path: Path) -> None:
    needs("deltalake")
    import deltalake

    lake = Lake("delta", tmp_path)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])
    deltalake.DeltaTable.create(lake.options["path"], deltalake.Schema.from_arrow(schema))
    lake.add(ROWS)
    with pytest.raises(SerializationError, match="column id of the table must not be null, and a row's is"):
        lake.add(pa.table({"id": pa.array([None], pa.int64())}))
    with pytest.raises(ConfigError, match="must not be null, and the rows lack it"):
        lake.add(pa.table({"city": ["Bonn"]}))
