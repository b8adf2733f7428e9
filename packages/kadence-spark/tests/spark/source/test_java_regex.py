"""Java's regular expressions, in Python's words."""

from __future__ import annotations

import pytest

from kadence.errors import ConfigError
from kadence_spark.source.java_regex import compiled


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("orders", ["orders", "eu.orders-v2"], ["order"]),
        ("^orders$", ["orders"], ["eu.orders", "orders-v2"]),
        (r"\Aa|b\z", ["ax", "xb"], ["xax", "bx"]),
        (r"\p{Lower}+\d{2}$", ["A-bc12"], ["BC12", "bc1"]),
        (r"^[\p{Upper}_]++x", ["A_x"], ["a_x"]),
        (r"^\P{Digit}+$", ["a.b-c"], ["a1"]),
        (r"^\pL\pN$", ["a1"], ["1a", "ab"]),
        (r"\Qa.b\E-\d", ["a.b-1"], ["axb-1", "a.b-x"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"^(?<half>..)\k<half>$", ["abab"], ["abba"]),
        (r"(?<=eu\.)orders(?!-old)", ["eu.orders"], ["us.orders", "eu.orders-old"]),
        (r"^(?>a|ab)c", ["ac"], ["abc"]),
        (r"(?i)ORDERS", ["orders"], ["order"]),
        (r"\[|a&&b", ["xa&&b"], ["ab"]),
    ],
)
def test_what_is_found(pattern: str, found: list[str], not_found: list[str]) -> None:
    expression = compiled(pattern)
    assert [name for name in [*found, *not_found] if expression.search(name)] == found


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a(", "unterminated"),
        ("[a-z&&[^b]]", "a set of characters within a set (&& at 4)"),
        ("[a[bc]]", "a set of characters within a set ([ at 2)"),
        (r"\p{IsGreek}", r"the class \p{IsGreek}, which is not known here: known are Lower,"),
        (r"[\P{L}]", r"the class \P{L}, which is not known here within a set"),
        (r"\p{", "bad escape"),
        (r"a\h", "bad escape"),
        ("a(?i)b", "global flags not at the start"),
    ],
)
def test_what_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(pattern)
    assert repr(pattern) in str(caught.value)
    assert said in str(caught.value)
