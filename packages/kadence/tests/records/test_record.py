"""The record: immutable, equal by value, picklable."""

from __future__ import annotations

import contextlib
import gc
import pickle
import weakref
from typing import Any

import pytest

from kadence._native.records import set_delivery_count
from kadence._native.shared import rebuild_record
from kadence.consumer.decoded_records import Decoder
from kadence.records import Record

FIELDS = {
    "topic": "orders",
    "partition": 3,
    "offset": 2**40,
    "timestamp": 1_700_000_000_007,
    "timestamp_type": 1,
    "key": b"k",
    "value": None,
    "headers": (("trace", b"1"), ("null", None)),
    "leader_epoch": 5,
}


def make(**changes: Any) -> Any:
    return Record(**{**FIELDS, **changes})


def test_fields_and_defaults() -> None:
    record = make()
    assert {name: getattr(record, name) for name in FIELDS} == FIELDS
    short = Record("t", 0, 1)
    assert (short.timestamp, short.timestamp_type, short.key, short.value) == (-1, 0, None, None)
    assert (short.headers, short.leader_epoch) == ((), None)


def test_headers_become_a_tuple() -> None:
    assert make(headers=[("a", b"1")]).headers == (("a", b"1"),)


def test_nothing_can_be_changed() -> None:
    record = make()
    for name in FIELDS:
        with pytest.raises(AttributeError):
            setattr(record, name, 1)
    with pytest.raises(AttributeError):
        record.other = 1
    with pytest.raises(AttributeError):
        del record.value
    with contextlib.suppress(TypeError):
        record.__init__("other", 0, 0)
    assert record == make()


@pytest.mark.parametrize("name", FIELDS)
def test_equality_is_by_value_of_every_field(name: str) -> None:
    assert make() == make()
    other = make(**{name: 9 if isinstance(FIELDS[name], int) else b"other" if name != "headers" else ()})
    assert make() != other
    assert make() != tuple(FIELDS.values())


def test_hash_goes_by_place_so_that_values_may_be_unhashable() -> None:
    assert hash(make()) == hash(make())
    assert hash(make(value={"a": []})) == hash(make())


def test_the_text_has_sizes_and_nothing_of_the_content() -> None:
    assert repr(make()) == (
        "Record(topic='orders', partition=3, offset=1099511627776, timestamp=1700000000007, timestamp_type=1, "
        "key=<1 bytes>, value=None, headers=<2>, leader_epoch=5)"
    )
    decoded = make(key="geheim", value={"password": "geheim"}, headers=(("geheim", b"geheim"),))
    assert "key=<6 characters>, value=<dict>, headers=<1>" in repr(decoded)
    assert "geheim" not in repr(decoded)


def test_replace() -> None:
    changed = make().replace(value={"a": 1})
    assert changed.value == {"a": 1}
    assert changed.replace(value=None) == make()
    with pytest.raises(TypeError, match="no field 'vlaue'"):
        make().replace(vlaue=1)


def test_a_pickle_names_no_compiled_module() -> None:
    data = pickle.dumps(make())
    assert b"_native.records" not in data
    loaded = pickle.loads(data)
    assert {name: getattr(loaded, name) for name in FIELDS} == FIELDS
    function, arguments = make().__reduce__()
    assert function is rebuild_record
    assert Record(*arguments) == make()


def test_out_of_range_numbers_are_refused() -> None:
    with pytest.raises(OverflowError):
        make(offset=2**63)


class Holder:
    """Something that a deserialiser could make: it points back at its record."""

    record: Any


def test_a_cycle_through_a_deserialised_value_is_collected() -> None:
    holder = Holder()
    gone = weakref.ref(holder)
    holder.record = make(value=holder)
    del holder
    gc.collect()
    assert gone() is None


def test_a_delivery_count_is_one_of_the_fields_where_a_queue_has_set_it() -> None:
    assert make().delivery_count is None
    assert "delivery_count" not in repr(make())
    counted = make().replace(delivery_count=3)
    assert counted.delivery_count == 3
    assert repr(counted).endswith(", delivery_count=3)")
    assert counted != make()
    assert pickle.loads(pickle.dumps(counted)) == counted


def test_a_delivery_count_is_set_on_decoded_records_and_stays_with_what_a_deserialiser_makes_of_them() -> (
    None
):
    records: list[Record] = [make(), make()]
    set_delivery_count(records, 2)
    decoded: list[Record] = []
    Decoder(None, lambda data: data).run(records, 0, 2, decoded)
    assert [each.delivery_count for each in (*records, *decoded)] == [2, 2, 2, 2]
    with pytest.raises(TypeError, match="Cannot convert int"):
        set_delivery_count([5], 2)  # type: ignore[list-item]
