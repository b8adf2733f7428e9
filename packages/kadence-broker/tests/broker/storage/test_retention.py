"""Records go by age and by size, in whole segments; and a topic's configuration is judged as Kafka judges it."""

from __future__ import annotations

import pytest
from tests.broker.storage.test_partition import NOW, batch, partition, stored
from tests.broker.wire import Wire, at, fetch

from kadence.clock import wall_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker
from kadence_broker.storage import Partition
from kadence_broker.topic_configs import TOPIC_KEYS, check_topic_config
from kadence_testing import FakeClock


def filled(*timestamps: int, **config: str) -> Partition:
    """A partition with a segment for each batch."""
    log = partition(segment_bytes="20000", **config)
    for timestamp in timestamps:
        log.append(NOW, batch(1, timestamp=timestamp, key=bytes(15_000)))
    return log


def test_segments_go_once_their_newest_record_is_too_old() -> None:
    log = filled(NOW - 900, NOW - 300, NOW - 600, NOW, retention_ms="500")
    log.retain(NOW)
    assert log.start_offset == 1, "what is old behind something young stays"
    log.retain(NOW + 201)
    assert log.start_offset == 3
    assert [each.timestamp for each in stored(log, 3)] == [NOW]


def test_the_segment_that_is_written_to_goes_too_once_all_of_it_is_old() -> None:
    log = filled(NOW, NOW, retention_ms="500")
    log.retain(NOW + 501)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (2, 2, 2)
    assert log.append(NOW, batch()).base_offset == 2
    assert [each.offset for each in stored(log, 2)] == [2]


def test_records_without_a_date_go_by_the_time_of_their_append() -> None:
    log = filled(-1, retention_ms="500")
    log.retain(NOW + 400)
    assert log.start_offset == 0
    log.retain(NOW + 600)
    assert log.start_offset == 1


@pytest.mark.parametrize(
    "config", [{"retention_ms": "-1"}, {"cleanup_policy": "compact", "retention_ms": "1"}]
)
def test_without_a_bound_nothing_goes(config: dict[str, str]) -> None:
    log = filled(5, NOW, **config)
    log.retain(NOW * 2)
    assert log.start_offset == 0


def test_the_oldest_go_while_the_bound_is_still_kept() -> None:
    log = filled(*[NOW] * 10, retention_bytes="40000")
    assert log.start_offset == 7
    assert 40_000 <= log.log.size_bytes < 60_000


def test_a_segment_is_written_to_for_segment_ms_at_most() -> None:
    log = partition(segment_ms="1000")
    for moment in (NOW, NOW + 999, NOW + 1_000):
        log.append(moment, batch())
    assert [each.base_offset for each in log.log.segments] == [0, 2]


def test_a_topic_lets_records_go_as_time_passes() -> None:
    clock = FakeClock()
    began = wall_ms()
    with Broker(clock=clock) as broker, Wire(broker) as wire:
        config = [CreatableTopicConfig(name="retention.ms", value="600000")]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=config)
        assert wire.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code == codes.NONE
        wire.produce("t", [b"v"], timestamp=began)
        for _ in range(2):
            clock.advance(310_000)
            for _ in range(3):
                wire.call(MetadataRequest(topics=None))
        assert broker.offsets("t") == [(1, 1)]
        answer = wire.call(fetch("t", at(0)), 12).responses[0].partitions[0]
        assert answer.error_code == codes.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "shred"),
        ("max.message.bytes", "-5"), ("max.message.bytes", "much"), ("max.message.bytes", str(2**31)),
        ("message.timestamp.type", "Never"), ("min.cleanable.dirty.ratio", "1.5"), ("preallocate", "perhaps"),
        ("retention.ms", None), ("retention.ms", "-2"), ("segment.bytes", "1000"), ("max.message.byte", "3"),
    ],
)  # fmt: skip
def test_a_topic_with_a_wrong_configuration_is_not_made(wire: Wire, name: str, value: str | None) -> None:
    config = [CreatableTopicConfig(name=name, value=value)]
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=config)
    answer = wire.call(CreateTopicsRequest(topics=[topic])).topics[0]
    assert answer.error_code == codes.INVALID_CONFIG
    assert name in answer.error_message


def test_every_default_is_a_value_that_may_be_set() -> None:
    assert check_topic_config({name: key.default for name, key in TOPIC_KEYS.items()}) is None
