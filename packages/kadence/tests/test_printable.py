from __future__ import annotations

import json

import pytest

from kadence import TopicPartition
from kadence.errors import BrokerError
from kadence.printable import printable, printable_json

SET_CLIPBOARD = "\x1b]52;c;aGk=\x07"
CLEAR_SCREEN = "\x9b2J"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-7 Grüße 日本　語 👩‍💻", "orders-7 Grüße 日本　語 👩‍💻"),
        (SET_CLIPBOARD, r"\x1b]52;c;aGk=\x07"),
        (CLEAR_SCREEN, r"\x9b2J"),
        ("a\nb\r\tc\x7f\x00", r"a\x0ab\x0d\x09c\x7f\x00"),
        ("\u202eexe.txt\u2066\u200f\u061c", r"\u202eexe.txt\u2066\u200f\u061c"),
        ("a\u2028b\x85c", r"a\u2028b\x85c"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_steers_a_terminal_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_json_keeps_its_meaning() -> None:
    document = {"key": f"{SET_CLIPBOARD}{CLEAR_SCREEN}\u202e\x7fä"}
    shown = printable_json(json.dumps(document, ensure_ascii=False))
    assert json.loads(shown) == document
    assert printable(shown) == shown
    assert "ä" in shown


def test_the_words_of_a_broker_are_printable() -> None:
    error = BrokerError(f"go away{CLEAR_SCREEN}\nsecond line", code=87)
    assert str(error) == r"INVALID_RECORD (87): go away\x9b2J\x0asecond line"


def test_a_partition_is_printable() -> None:
    assert str(TopicPartition("t\x1b[2J", 0)) == r"t\x1b[2J-0"
