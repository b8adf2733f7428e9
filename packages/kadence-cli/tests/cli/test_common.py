"""What the commands share."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence_cli import common
from kadence_cli.common import UsageError
from kadence_cli.names import chosen


@given(st.none() | st.binary(max_size=50))
def test_any_bytes_survive_json(data: bytes | None) -> None:
    shown = json.loads(json.dumps(common.text_of(data)))
    assert common.bytes_of(shown) == data


def test_other_json_becomes_its_text() -> None:
    assert common.bytes_of({"a": [1, None]}) == b'{"a":[1,null]}'
    assert common.bytes_of(5) == b"5"
    assert common.bytes_of("\u00e9") == "\u00e9".encode()
    with pytest.raises(ValueError, match="not base64"):
        common.bytes_of({"base64": "!"})


def test_settings() -> None:
    assert common.read_settings(["a.b=c=d", "e=", " f = g "]) == {"a.b": "c=d", "e": "", "f": "g"}
    with pytest.raises(UsageError, match="-X takes KEY=VALUE") as told:
        common.read_settings(["sasl.password:secret"])
    assert "secret" not in str(told.value)


ROWS = [
    {"name": "a", "count": 1234, "mean": 1.5, "list": [1, 2], "nothing": None},
    {"name": "bcd", "count": 5},
]
COLUMNS = ("name", "count", "mean", "list", "nothing")


def test_a_table() -> None:
    out = io.StringIO()
    common.print_table(ROWS, COLUMNS, out, title="Title")
    assert out.getvalue() == (
        "Title\nname  count  mean  list  nothing\na     1,234  1.50  1, 2  -\nbcd       5     -  -     -\n"
    )


def test_a_table_is_shortened_to_80_columns() -> None:
    row = {
        "id": "member-" + "0123456789" * 5,
        "count": 10**12,
        "partitions": [f"topic-{n}" for n in range(40)],
    }
    out = io.StringIO()
    common.print_table([row, {**row, "count": None}], list(row), out)
    head, first, second = out.getvalue().splitlines()
    assert max(len(head), len(first), len(second)) <= 80
    shown = first.split("  ")
    assert shown[0].startswith("member-0123")
    assert "…" in shown[0]
    assert shown[0].endswith("6789")
    assert "1,000,000,000,000" in shown
    assert re.fullmatch(r"topic-0, topic-1(, topic-\d+)* \+3\d", shown[-1])
    wide = io.StringIO()
    common.print_table([row], list(row), wide, wide=True)
    assert str(row["id"]) in wide.getvalue()
    assert "topic-39" in wide.getvalue()
    wrapped = io.StringIO()
    common.print_table([row], list(row), wrapped, wrap=True)
    assert max(map(len, wrapped.getvalue().splitlines())) <= 80
    assert "topic-39" in wrapped.getvalue()


def test_rows_are_json_lines_unless_a_terminal_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common.print_rows(ROWS[1:], as_json=False)
    assert capsys.readouterr().out == '{"name":"bcd","count":5}\n'
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    common.print_rows(ROWS[1:], as_json=False)
    assert "bcd" in capsys.readouterr().out
    common.print_rows([{"name": "x" * 200}], as_json=False, wide=True)
    assert "x" * 200 in capsys.readouterr().out
    common.print_rows([], as_json=False, columns=("name",))
    assert "name" in capsys.readouterr().out
    common.print_rows(ROWS[1:], as_json=True)
    assert capsys.readouterr().out == '{"name":"bcd","count":5}\n'


def test_a_name_with_the_letters_of_a_pattern_is_a_name() -> None:
    listed = ["a[1]", "a1", "ab"]
    assert chosen(["a[1]"], lambda: listed, "group") == ["a[1]"]
    assert chosen(["a[b1]"], lambda: listed, "group") == ["a1", "ab"]
