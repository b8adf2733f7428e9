"""Spark's checkpoints as files. With the connector itself: tests/interop/test_spark_connector.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shapes import SHAPES

from kadence.errors import IllegalStateError
from kadence_cli import main
from kadence_spark.checkpoints import Checkpoint, rewrite_for_connector
from kadence_spark.source.offsets import NOT_BEGUN

ID = "Zc3yHpHcQ-SEaDD5bUYm7w"
HEAD = ("v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_123, "conf": {"a": "b"}}))
OURS = {"#t": {"0": 0, "1": 5}, f"@t={ID}": {}, "t": {"0": 10, "1": 20}}
NEXT = {f"@t={ID}": {}, "t": {"0": 12, "1": 20}}
FILES = {"logOffset": 3}


def lines_of(*sources: Any) -> str:
    return "\n".join((*HEAD, *("-" if source is None else json.dumps(source) for source in sources)))


def checkpoint(directory: Path, batches: Sequence[Sequence[Any]], committed: int) -> Path:
    """As Spark writes it, with Hadoop's checksums; each batch is the ends of its sources."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"the-query"}')
    for number, sources in enumerate(batches):
        for name in ("offsets", "commits")[: 1 + (number < committed)]:
            (directory / name / str(number)).write_text(lines_of(*sources) if name == "offsets" else "v1\n{}")
            (directory / name / f".{number}.crc").write_bytes(b"crc")
    return directory


def offsets(directory: Path, number: int) -> list[str]:
    return (directory / "offsets" / str(number)).read_text().split("\n")[2:]


def test_a_committed_batch_is_rewritten(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, [[OURS], [NEXT]], committed=2)
    assert not Checkpoint.read(found).is_for_connector
    assert [batch.number for batch in rewrite_for_connector(found)] == [0, 1]
    assert offsets(found, 0) == ['{"t":{"0":10,"1":20}}']
    assert offsets(found, 1) == ['{"t":{"0":12,"1":20}}']
    assert (found / "offsets" / "1").read_text().split("\n")[:2] == list(HEAD)
    # Hadoop would find that its checksums are of another text.
    assert sorted(path.name for path in (found / "offsets").iterdir()) == ["0", "1"]
    assert sorted(path.name for path in (found / "commits").iterdir()) == ["0", "1"]
    assert Checkpoint.read(found).is_for_connector
    assert rewrite_for_connector(found) == ()


def test_a_batch_that_will_be_repeated_begins_where_kadence_began_it(tmp_path: Path) -> None:
    """A partition that it meets first, and one that had to skip ahead: the connector asks the batch before."""
    grown = {"#t": {"1": 25, "2": 7}, f"@t={ID}": {}, "t": {"0": 12, "1": 30, "2": 9}}
    found = checkpoint(tmp_path, [[OURS], [grown]], committed=1)
    assert [batch.number for batch in rewrite_for_connector(found)] == [0, 1]
    assert [json.loads(*offsets(found, number)) for number in (0, 1)] == [
        {"t": {"0": 10, "1": 25, "2": 7}},
        {"t": {"0": 12, "1": 30, "2": 9}},
    ]


def test_a_source_without_news_in_a_batch_that_will_be_repeated_stays_where_it_is(tmp_path: Path) -> None:
    """A union: it repeats its line, with the starts of a batch before. The connector would read from these again."""
    found = checkpoint(tmp_path, [[OURS, OURS], [OURS, NEXT]], committed=1)
    rewrite_for_connector(found)
    assert offsets(found, 0) == ['{"t":{"0":10,"1":20}}'] * 2
    assert offsets(found, 1) == ['{"t":{"0":10,"1":20}}', '{"t":{"0":12,"1":20}}']


def test_a_source_that_has_not_begun_begins_as_the_connector_says(tmp_path: Path) -> None:
    """Its line beside that of another source, as in a join whose other side alone has had records."""
    found = checkpoint(tmp_path, [[OURS, NOT_BEGUN], [NEXT, NOT_BEGUN]], committed=2)
    rewrite_for_connector(found)
    assert offsets(found, 1) == ['{"t":{"0":12,"1":20}}', "-"]
    assert Checkpoint.read(found).is_for_connector


def test_a_first_batch_that_is_not_committed_is_left_to_kadence(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, [[OURS]], committed=0)
    with pytest.raises(
        IllegalStateError, match="batch 0 is not committed, and it is the first: let Kadence finish it"
    ):
        rewrite_for_connector(found)
    assert json.loads(*offsets(found, 0)) == OURS
    ended = checkpoint(tmp_path / "ended", [[OURS]], committed=1)
    rewrite_for_connector(ended)
    assert Checkpoint.read(ended).is_for_connector
    # Without starts there is nothing to lose: it began at what the connector noted.
    found = checkpoint(tmp_path / "theirs", [[NEXT]], committed=0)
    rewrite_for_connector(found)
    assert offsets(found, 0) == ['{"t":{"0":12,"1":20}}']


def test_other_sources_of_the_query_are_left_alone(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, [[FILES, OURS, None, 7]], committed=1)
    rewrite_for_connector(found)
    assert offsets(found, 0) == ['{"logOffset": 3}', '{"t":{"0":10,"1":20}}', "-", "7"]


def test_a_checkpoint_of_the_connector_is_left_as_it_is(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, [[{"t": {"0": 10}}], [{"t": {"0": 12}}]], committed=1)
    before = {path: path.read_bytes() for path in found.rglob("[!.]*") if path.is_file()}
    assert rewrite_for_connector(found) == ()
    assert {path: path.read_bytes() for path in found.rglob("*") if path.is_file()} == before


def test_checksums_of_a_query_s_state_go_and_other_hidden_files_stay(tmp_path: Path) -> None:
    """A session of Kadence may have written a file of state anew beside the checksum of an older one."""
    found = checkpoint(tmp_path, [[{"t": {"0": 10}}]], committed=1)
    state = found / "state" / "0" / "0"
    state.mkdir(parents=True)
    for name in ("1.delta", ".1.delta.crc", "1.delta.crc", ".1.delta.crc.crc", ".orphan.crc", ".hidden"):
        (state / name).touch()
    rewrite_for_connector(found)
    assert sorted(path.name for path in state.iterdir()) == sorted(
        ("1.delta", "1.delta.crc", ".orphan.crc", ".hidden")
    )


def test_a_query_that_runs_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkpoint(tmp_path, [[OURS]], committed=1)
    replace = Path.replace

    def meanwhile(self: Path, target: Path) -> Path:
        (found / "offsets" / "1").write_text(lines_of(NEXT))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    with pytest.raises(IllegalStateError, match=r"a query runs on .* stop it, and try again"):
        rewrite_for_connector(found)
    monkeypatch.undo()
    rewrite_for_connector(found)
    assert Checkpoint.read(found).is_for_connector


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v2\n{}\nx", "is not of version v1 .* begins with 'v2'"),
        ("", "is not of version v1"),
        ("v1", "is not of"),
        ('v1\n{}\n{"t":{"0":', "is damaged .*restore it"),
        ("v1\n{}\n" + "[" * 100_000, "is damaged"),
        ("v1\n{}\n\udcff", "is damaged"),
    ],
)
def test_files_that_are_not_known(tmp_path: Path, text: str, said: str) -> None:
    found = checkpoint(tmp_path, [[OURS]], committed=1)
    before = (found / "offsets" / "0").read_bytes()
    (found / "offsets" / "0").write_text(text, errors="surrogateescape")
    with pytest.raises(IllegalStateError, match=said):
        Checkpoint.read(found)
    (found / "offsets" / "0").write_bytes(before)
    assert Checkpoint.read(found).last.is_committed
    with pytest.raises(IllegalStateError, match="is not a checkpoint with a batch"):
        Checkpoint.read(tmp_path / "nowhere")


@pytest.mark.parametrize("offset", ["1e400", "1.5", "true"])
def test_offsets_that_are_no_whole_numbers_are_not_kafkas(tmp_path: Path, offset: str) -> None:
    found = checkpoint(tmp_path, [[OURS]], committed=1)
    text = f'v1\n{{"batchTimestampMs":{10**30}}}\n{{"t":{{"0":{offset}}}}}'
    (found / "offsets" / "0").write_text(text)
    batch = Checkpoint.read(found).last
    assert (batch.sources[0].point, batch.began_ms) == (None, None)


def test_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checkpoint(tmp_path, [[OURS], [NEXT, FILES]], committed=1)
    assert main(["checkpoint", "show", str(found)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert tuple(shown) == SHAPES["checkpoint show"].fields
    assert shown == {
        "query": "the-query",
        "committed_batch": 0,
        "pending_batch": 1,
        "began": "2023-11-14T22:13:20.123+00:00",
        "connector_reads_it": False,
        "sources": [
            {"offsets": {"t": {"0": 12, "1": 20}}, "starts": {}, "topic_ids": {"t": ID}},
            {"other": '{"logOffset": 3}'},
        ],
    }
    assert main(["checkpoint", "to-connector", f"file://{found}"]) == 0
    assert "offsets/0 and offsets/1 rewritten" in capsys.readouterr().err
    assert main(["checkpoint", "to-connector", str(found)]) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert main(["checkpoint", "show", "s3a://bucket/checkpoint"]) == 1
    assert "is not on this machine; copy the directory here" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["checkpoint", "show", str(found)]) == 0
    words = capsys.readouterr().out
    for said in ("the-query", "it is not known to be in the sink", "t:1", "20", "not of Kafka"):
        assert said in words
