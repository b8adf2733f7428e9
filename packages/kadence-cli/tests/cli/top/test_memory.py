"""What `kadence top` remembers, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kadence_cli.top.memory import Memory, memory_file


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    memory = Memory({"groups": ("LAG", True)}, "partitions", unfolds=True)
    memory.save(tmp_path / "kadence" / "top.json")
    assert Memory.load(tmp_path / "kadence" / "top.json") == memory
    assert [each.name for each in (tmp_path / "kadence").iterdir()] == ["top.json"]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"[1]",
        b"{",
        b"\xff",
        b'{"sort": [1], "tab": 3, "unfolds": "yes"}',
        b'{"sort": {"groups": [1, 2]}}',
    ],
)
def test_what_is_damaged_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "top.json").write_bytes(damaged)
    assert Memory.load(tmp_path / "top.json") == Memory()


def test_a_place_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "kadence").write_text("a file")
    Memory(unfolds=True).save(tmp_path / "kadence" / "top.json")
    assert Memory.load(tmp_path / "kadence" / "top.json") == Memory()


def test_where_it_stands() -> None:
    assert memory_file({"XDG_STATE_HOME": "/state"}) == Path("/state/kadence/top.json")
