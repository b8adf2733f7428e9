"""Projections."""

from __future__ import annotations

import pytest

from kadence.errors import ConfigError
from kadence_spark.source.schema import projection


def test_a_projection_keeps_its_order_and_finds_our_spelling() -> None:
    assert projection([("OFFSET", "bigint"), ("value", "binary")], include_headers=False) == (
        "offset",
        "value",
    )
    headers = ("headers", "array<struct<key:string,value:binary>>")
    assert projection([headers], include_headers=True) == ("headers",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("amount", "int"), "no column 'amount'"),
        (("value", "string"), "'value' is binary, not string"),
        (("headers", "array<struct<key:string,value:binary>>"), "includeHeaders=true"),
    ],
)
def test_what_the_source_does_not_have(given: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        projection([given], include_headers=False)
