"""Single fields of values as columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kadence.reading.fields import field_of, fit_field, path_to, top_level

KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("key", pa.string()),
        ("from", pa.struct([("city", pa.string()), ("a.b", pa.int64())])),
        ("x.y", pa.int64()),
    ]
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("id", ["id"]),
        ("value.id", ["id"]),
        ("value.key", ["key"]),
        ("from.city", ["from", "city"]),
        ("value.from.city", ["from", "city"]),
        ("x.y", ["x.y"]),
        ("from.a.b", ["from", "a.b"]),
        ("from", ["from"]),
        ("id.city", None),
        ("city", None),
    ],
)
def test_what_a_name_leads_to(name: str, path: list[str] | None) -> None:
    assert path_to(KIND, name) == path


def test_a_field_of_a_value_that_is_null_is_null() -> None:
    values = pa.chunked_array([pa.array([{"from": {"city": "Oslo"}}, None, {"from": None}], KIND)])
    assert field_of(values, "from.city").to_pylist() == ["Oslo", None, None]
    nothing = field_of(values, "city")
    assert (nothing.type, nothing.to_pylist()) == (pa.null(), [None] * 3)
    assert fit_field(nothing, pa.struct([("city", pa.string())]), "city").type == pa.string()
    assert fit_field(nothing, KIND, "city").type == pa.null()


def test_only_what_leads_to_fields_is_read() -> None:
    assert [field.name for field in top_level(KIND, ["from.city", "value.id"])] == ["id", "from"]
    with pytest.raises(ValueError, match="the schema has no field 'city'"):
        top_level(KIND, ["city"])
