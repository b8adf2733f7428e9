"""Every message in every version through our own writer and reader, and what bad bytes do to the reader.

Here nothing is held back for a second implementation's sake: unknown error codes, all timestamps, unknown
tagged fields at every level.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.protocol.values import Case, cases, decode, encode, messages

from kadence.wire import Reader, WireError


@pytest.mark.parametrize("case", cases(), ids=str)
@examples(2)
@given(data=st.data())
def test_what_is_written_reads_back(case: Case, data: st.DataObject) -> None:
    message = data.draw(messages(case))
    written = encode(message, case.version)
    assert decode(case.python, case.version, written) == message


@pytest.mark.parametrize("case", cases(), ids=str)
def test_defaults_fit_every_version(case: Case) -> None:
    message = case.python()
    assert decode(case.python, case.version, encode(message, case.version)) == message


@examples(30)
@given(case=st.sampled_from(cases()), data=st.data())
def test_no_message_reads_from_less_than_its_bytes(case: Case, data: st.DataObject) -> None:
    written = encode(data.draw(messages(case)), case.version)
    for size in range(min(len(written), 400)):
        with pytest.raises(WireError):
            decode(case.python, case.version, written[:size])


@examples(60)
@given(case=st.sampled_from(cases()), data=st.data(), seed=st.integers(0, 2**32))
def test_mutated_bytes_raise_wire_errors_only(case: Case, data: st.DataObject, seed: int) -> None:
    written = encode(data.draw(messages(case)), case.version)
    chance = random.Random(seed)
    for _ in range(30):
        try:
            message = decode(case.python, case.version, mutated(written, chance))
        except WireError:
            continue
        # What reads at all is a message like any other: it can be written and read again.
        assert decode(case.python, case.version, encode(message, case.version)) == message


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with a few of them changed, doubled, lost or replaced by what lengths that lie look like."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(4)
        if kind == 0 and out:
            out[at % len(out)] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif kind == 1:
            out[at:at] = chance.randbytes(chance.randint(1, 5))
        elif kind == 2:
            del out[at : at + chance.randint(1, 5)]
        else:
            lie = chance.choice(
                [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff", b"\x80\x00\x00\x00"]
            )
            out[at : at + len(lie)] = lie
    return bytes(out)


def test_a_lying_array_length_allocates_nothing() -> None:
    from kadence.protocol.metadata import MetadataResponse

    frame = b"\x00\x00\x00\x00" + b"\x7f\xff\xff\xff" + bytes(100)  # 2^31 - 1 brokers in 100 bytes
    with pytest.raises(WireError, match="an array of 2147483647 elements in 100 bytes"):
        MetadataResponse.read(Reader(frame), 3)


def test_records_are_a_view_of_the_frame() -> None:
    from kadence.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData

    batch = bytes(range(256)) * 64
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=batch)])])
    for version in (4, 11, 12, 18):
        frame = bytearray(encode(response, version))
        records = FetchResponse.read(Reader(frame), version).responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert records == batch
        frame[frame.index(batch)] = 77
        assert records[0] == 77
        records.release()


def test_frames_of_any_buffer_type_read_alike() -> None:
    from kadence.protocol.join_group import JoinGroupResponse, JoinGroupResponseMember

    members = [JoinGroupResponseMember(member_id="mé", metadata=b"\x00\x01")]
    message = JoinGroupResponse(generation_id=3, protocol_name="range", members=members)
    written = encode(message, 9)
    for buffer in (written, bytearray(written), memoryview(written), memoryview(bytearray(written))):
        read = JoinGroupResponse.read(Reader(buffer), 9)
        assert read == message
        assert type(read.members[0].metadata) is bytes
