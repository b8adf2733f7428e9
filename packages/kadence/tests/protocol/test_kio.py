"""Every message in every version against kio, an independent implementation made from Kafka's own schema files.

Both ways and byte for byte: what we write is what kio writes, and what kio wrote reads back as the value.
kio cannot represent everything (unknown error codes, timestamps with milliseconds, unknown tagged fields);
those are drawn in full by test_round_trip.py.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from tests.luck import examples
from tests.protocol.values import Case, Limits, cases, decode, encode, messages

from kadence.protocol import error_codes

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NEWER = {
    f"{name}{kind}-v{version}"
    for name, version in (("ApiVersions", 5), ("TxnOffsetCommit", 6), ("DeleteGroups", 3))
    for kind in ("Request", "Response")
}
"""Kafka 4.4's, which kio does not have."""
CASES = [case for case in cases() if case.module.record_type is None and str(case) not in NEWER]
"""kio does not have the records that coordinators store."""
RENAMED = {"generation_id": "generation_id_or_member_epoch"}
"""Kafka 4.4's names of fields in TxnOffsetCommit that kio has by their names before."""
NEWER_CODES = {
    134: "GROUP_DELETION_FAILED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
    136: "CONTROLLER_ID_NOT_REGISTERED",
}
"""Kafka 4.4's, which kio does not have; none is retriable."""
CODES = st.sampled_from(sorted(error_codes.NAMES.keys() - NEWER_CODES.keys()))
DURATIONS = st.integers(-(10**12), 10**12)
LIMITS = Limits(
    by_field=(
        ("acknowledge_error_code", CODES),
        ("partition_error_code", CODES),
        ("error_code", CODES),
        # kio has whole seconds only, and turns -1 into None.
        ("log_append_time_ms", st.just(-1) | st.integers(0, 253_402_300_799).map(lambda s: s * 1000)),
        ("transaction_start_time_ms", st.integers(0, 253_402_300_799).map(lambda s: s * 1000)),
        # kio goes through a float of seconds.
        ("session_lifetime_ms", DURATIONS),
        ("retention_time_ms", DURATIONS),
    ),
    unknown_tags=False,
)


def kio_class(case: Case) -> type:
    kind = "header" if case.struct.name.endswith("Header") else "data"
    for suffix in ("Request", "Response"):
        if case.module.key is not None and case.struct.name.endswith(suffix):
            kind = suffix.lower()
    module = importlib.import_module(f"kio.schema.{case.module.python_name}.v{case.version}.{kind}")
    found: type = getattr(module, case.struct.name)
    return found


def to_kio(cls: Any, message: Any) -> Any:
    """Our message as kio's."""
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        name = field.name
        if name not in message.__slots__:
            # kio drops the unit of what it makes a timedelta or a datetime.
            name = RENAMED.get(name, f"{name}_ms")
        values[field.name] = _to_kio(
            field.metadata.get("kafka_type"), hints[field.name], getattr(message, name)
        )
    return cls(**values)


def _to_kio(kind: str | None, hint: Any, value: Any) -> Any:
    if value is None:
        return None
    arms = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
    if isinstance(value, list):
        (array,) = [arm for arm in arms if typing.get_origin(arm) is tuple]
        return tuple(_to_kio(kind, typing.get_args(array)[0], item) for item in value)
    match kind:
        case None:
            (cls,) = [arm for arm in arms if dataclasses.is_dataclass(arm)]
            return to_kio(cls, value)
        case "error_code":
            return ErrorCode(value)
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case _:
            return value


@pytest.mark.parametrize("case", CASES, ids=str)
@examples(2)
@given(data=st.data())
def test_bytes_equal_kios_both_ways(case: Case, data: st.DataObject) -> None:
    message = data.draw(messages(case, LIMITS))
    cls = kio_class(case)
    theirs = to_kio(cls, message)
    buffer = io.BytesIO()
    entity_writer(cls)(buffer, theirs)
    assert encode(message, case.version) == buffer.getvalue()
    assert decode(case.python, case.version, buffer.getvalue()) == message
    reader: Any = entity_reader(cls)
    read, size = reader(encode(message, case.version), 0)
    assert read == theirs
    assert size == len(buffer.getvalue())


def test_kio_has_the_same_fields() -> None:
    for case in CASES:
        todo = [kio_class(case)]
        while todo:
            cls: Any = todo.pop()
            ours = {f.name for f in case.module.structs[cls.__name__].fields if case.version in f.versions}
            theirs = {field.name for field in dataclasses.fields(cls)}
            others = {RENAMED.get(name, f"{name}_ms") for name in theirs - ours}
            assert theirs | others >= ours, f"{case} {cls.__name__}"
            assert len(theirs) == len(ours), f"{case} {cls.__name__}"
            hints = typing.get_type_hints(cls)
            arms = [arm for name in theirs for arm in (hints[name], *typing.get_args(hints[name]))]
            arms += [inner for arm in arms for inner in typing.get_args(arm)]
            todo += [arm for arm in arms if isinstance(arm, type) and dataclasses.is_dataclass(arm)]


def test_error_codes_are_kios() -> None:
    for code in ErrorCode:
        assert error_codes.NAMES[int(code)].lower() == code.name
        assert (int(code) in error_codes.RETRIABLE) == code.retriable
    codes = {int(code) for code in ErrorCode}
    assert {code: name for code, name in error_codes.NAMES.items() if code not in codes} == NEWER_CODES
    assert not error_codes.RETRIABLE & NEWER_CODES.keys()
