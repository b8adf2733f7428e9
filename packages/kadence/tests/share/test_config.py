"""The share consumer's keys: what it has, and what it refuses with the key that counts instead."""

from __future__ import annotations

import pytest

from kadence.config import ConsumerConfig, ProducerConfig, ShareConsumerConfig, keys
from kadence.config.share_consumer import _REFUSED
from kadence.errors import ConfigError

NEEDED = {"bootstrap.servers": "localhost:9092", "group.id": "jobs"}

OF_KAFKAS_OWN = (
    "auto.offset.reset",
    "enable.auto.commit",
    "group.instance.id",
    "isolation.level",
    "partition.assignment.strategy",
    "interceptor.classes",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol",
    "group.remote.assignor",
)
"""What `ShareConsumerConfig` of Kafka 4.4.0 refuses."""


def refusal(**settings: object) -> str:
    with pytest.raises(ConfigError) as error:
        ShareConsumerConfig.parse(NEEDED, **settings)
    return str(error.value)


def test_the_defaults_are_those_of_kafkas_own_and_locks_are_renewed() -> None:
    config = ShareConsumerConfig.parse(NEEDED)
    assert (config.share_acknowledgement_mode, config.share_acquire_mode) == ("implicit", "batch_optimized")
    assert (config.share_lock_renewal, config.max_poll_records) == (True, 500)
    assert not config.is_explicit
    assert not config.limits_records


def test_modes_are_words_of_any_case() -> None:
    config = ShareConsumerConfig.parse(
        NEEDED,
        share_acknowledgement_mode="EXPLICIT",
        share_acquire_mode="Record_Limit",
        share_lock_renewal="false",
    )
    assert config.is_explicit
    assert config.limits_records
    assert not config.share_lock_renewal
    assert "share.acquire.mode: 'all' is not one of" in refusal(**{"share.acquire.mode": "all"})


@pytest.mark.parametrize("name", OF_KAFKAS_OWN)
def test_what_kafkas_own_refuses_is_refused_in_one_sentence(name: str) -> None:
    said = refusal(**{name: "x"})
    assert said.startswith(f"a share consumer has no {name}: ")
    assert "\n" not in said
    assert ". " not in said


def test_every_key_of_a_consumer_is_either_here_or_refused_with_what_to_do() -> None:
    ours = {row.name for row in keys(ShareConsumerConfig)}
    theirs = {row.name for row in keys(ConsumerConfig)}
    assert theirs - ours == _REFUSED.keys() & theirs
    assert not ours & _REFUSED.keys()


def test_keys_of_a_queue_are_told_to_other_clients() -> None:
    for config, client in ((ConsumerConfig, "consumer"), (ProducerConfig, "producer")):
        with pytest.raises(ConfigError, match=f"is a key of the share consumer, not of the {client}"):
            config.parse({"bootstrap.servers": "a:1", "share.acquire.mode": "record_limit"})


def test_a_group_is_required() -> None:
    with pytest.raises(ConfigError, match=r"group\.id is required"):
        ShareConsumerConfig.parse({"bootstrap.servers": "a:1"})
    assert "group.id is empty" in refusal_of_group("")


def refusal_of_group(name: str) -> str:
    with pytest.raises(ConfigError) as error:
        ShareConsumerConfig.parse({"bootstrap.servers": "a:1", "group.id": name})
    return str(error.value)


def test_a_policy_for_bad_records_needs_a_deserialiser_and_letters_their_topic() -> None:
    assert "bytes are never bad" in refusal(deserialization_errors="reject")
    assert "belong together" in refusal(deserialization_errors="dead-letter", value_deserializer="json")
    config = ShareConsumerConfig.parse(
        NEEDED, deserialization_errors="dead-letter", value_deserializer="json", dead_letter_topic="bad"
    )
    assert config.dead_letter_topic == "bad"
    assert "one of raise, release, reject, dead-letter" in refusal(deserialization_errors="skip")
