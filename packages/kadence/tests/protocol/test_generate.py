"""The grammar of schema files, and that the tree holds what the generator makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kadence.protocol import error_codes
from python_modules import module_source
from schema_text import NEVER, SchemaError, Span, parse_errors, parse_module

ROOT = Path(__file__).resolve().parents[4]

EXAMPLE = """\
# What it is for.
api Ask key 7 versions 1-5 flexible 4+

request
    # Whom.
    names       [string]?3+       = null
    deadline    int64       2+    = -1 ignorable
    # What about.
    questions   [Question]
        text    string
        rank    int8?     2-3
        hints   [int32]   4+    tag 0
    client      string?         classic

response
    error_code  int16
"""


def parsed(tmp_path: Path, text: str) -> object:
    path = tmp_path / "ask.txt"
    path.write_text(text)
    return parse_module(path)


def test_a_schema_reads_as_it_looks(tmp_path: Path) -> None:
    path = tmp_path / "ask.txt"
    path.write_text(EXAMPLE)
    module = parse_module(path)
    assert (module.name, module.key, module.versions, module.flexible_from) == ("Ask", 7, Span(1, 5), 4)
    assert module.doc == "What it is for."
    assert list(module.structs) == ["Question", "AskRequest", "AskResponse"]
    names, deadline, questions, client = module.structs["AskRequest"].fields
    assert (names.base, names.is_array, names.nullable, names.default, names.doc) == (
        "string",
        True,
        Span(3, 5),
        "null",
        "Whom.",
    )
    assert (deadline.versions, deadline.default, deadline.ignorable) == (Span(2, 5), "-1", True)
    assert (questions.base, questions.is_array, questions.doc) == ("Question", True, "What about.")
    assert (client.nullable, client.classic) == (Span(1, 5), True)
    question = module.structs["Question"]
    assert question.doc == "What about."
    assert [(field.name, str(field.versions), field.tag) for field in question.fields] == [
        ("text", "1-5", None),
        ("rank", "2-3", None),
        ("hints", "4-5", 0),
    ]


def test_a_message_without_flexible_versions(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("message Note versions 0\n\nbody\n    text  string\n")
    module = parse_module(path)
    assert (module.key, module.flexible_from, list(module.structs)) == (None, NEVER, ["Note"])


def test_a_record_has_a_key_of_one_version_that_is_never_flexible(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text(
        "record Note type 3 versions 1-2 flexible 2+\n\nkey\n    id  string\n\nvalue\n    text  string\n"
    )
    module = parse_module(path)
    assert (module.python_name, module.key, module.record_type) == ("note_record", None, 3)
    key, value = module.tops
    assert (key.name, key.versions, key.classic) == ("NoteKey", Span(0, 0), True)
    assert (value.name, value.versions, value.classic) == ("NoteValue", Span(1, 2), False)
    assert "compact" not in module_source(module).partition("class NoteValue")[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no 'api', 'message' or 'record' line"),
        ("request\n", "ask.txt:1: the file begins with"),
        (
            "api Ask key 7 versions 1\n\nquestion\n",
            "ask.txt:3: 'request', 'response', 'body',",
        ),
        ("api Ask key 7 versions 1\nrequest\n    Name string\n", "ask.txt:3: not a field: 'Name string'"),
        ("api Ask key 7 versions 1\nrequest\n    name strng\n", "ask.txt:3: unknown type 'strng'"),
        (
            "api Ask key 7 versions 1-2\nrequest\n    name string 2-3\n",
            "versions 2-3 reach beyond the enclosing 1-2",
        ),
        ("api Ask key 7 versions 1\nrequest\n    name string optional\n", "not understood: 'optional'"),
        (
            "api Ask key 7 versions 1\nrequest\n    name string\n        x int8\n",
            "below something that is not a new",
        ),
        ("api Ask key 7 versions 1\nrequest\n    names [Name]\n", "struct Name has no fields"),
        (
            "api Ask key 7 versions 1-3\nrequest\n    a [Name] 2+\n        x int8\n    b [Name]\n",
            "ask.txt:5: Name is described for versions 2-3 only",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SchemaError) as raised:
        parsed(tmp_path, text)
    assert complaint in str(raised.value)


@pytest.mark.parametrize("line", ["7 lower: text", "7 NAME", "1 NAME: a\n1 OTHER: b", "NAME: text"])
def test_a_bad_error_code_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "errors.txt"
    path.write_text(line)
    with pytest.raises(SchemaError, match=r"errors\.txt:\d: not a new error code"):
        parse_errors(path)


def test_the_tree_holds_what_the_schema_says() -> None:
    pytest.importorskip("ruff", reason="it lays out what is generated")
    command = [sys.executable, str(ROOT / "tools" / "generate.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_error_codes_have_names_and_sentences() -> None:
    assert error_codes.MESSAGES.keys() == error_codes.NAMES.keys() == set(range(-1, 137))
    assert error_codes.name(error_codes.REBALANCE_IN_PROGRESS) == "REBALANCE_IN_PROGRESS"
    assert error_codes.name(error_codes.NONE) == "NONE"
    assert error_codes.name(999) == "UNKNOWN(999)"
    assert error_codes.NOT_COORDINATOR in error_codes.RETRIABLE
    assert error_codes.UNKNOWN_MEMBER_ID not in error_codes.RETRIABLE
