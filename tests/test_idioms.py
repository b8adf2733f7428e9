"""What users of other clients write to producers and admins out of habit is answered by a sentence of ours."""

from __future__ import annotations

import warnings
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kadence import Admin, AsyncAdmin, AsyncProducer, Broker, Producer

with warnings.catch_warnings(action="ignore"):
    import kafka

UNANSWERED = {"config", "init_transactions", "max_usable_produce_magic", "metrics", "client"}
"""What has no counterpart, and what is no call."""


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        (Producer, "produce", "call send(topic, value, key)"),
        (Producer, "poll", "it is not needed"),
        (Producer, "initTransactions", "call init_transactions()"),
        (AsyncProducer, "start", "it is not needed"),
        (AsyncProducer, "stop", "call close()"),
        (Admin, "incremental_alter_configs", "call alter_configs({resource: {name: value}})"),
        (Admin, "listTopics", "call list_topics()"),
        (AsyncAdmin, "list_consumer_groups", "call list_groups()"),
    ],
)
def test_a_call_of_another_client(kind: type[Any], name: str, sentence: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(object.__new__(kind), name)
    assert str(caught.value).startswith(f"{kind.__name__!r} object has no attribute {name!r}: {sentence}")


@pytest.mark.parametrize("client", [confluent_kafka.Producer, kafka.KafkaProducer, aiokafka.AIOKafkaProducer])
def test_each_call_of_another_producer_is_ours_or_has_a_sentence(client: type[Any]) -> None:
    for name in dir(client):
        if name.startswith("_") or name.isupper() or hasattr(Producer, name) or name in UNANSWERED:
            continue
        with pytest.raises(AttributeError, match=f"{name!r}: "):
            getattr(object.__new__(Producer), name)


def test_any_other_name_is_missing_as_ever() -> None:
    with Broker(topics={"t": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        future = producer.send("t", b"v")
        with pytest.raises(AttributeError, match=r"'get': call result\(timeout\)"):
            future.get(timeout=10)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"'add_callback': call add_done_callback\(function\)"):
            future.add_callback(print)  # type: ignore[attr-defined]
        for owner in (producer, future):
            with pytest.raises(
                AttributeError, match=f"^{type(owner).__name__!r} object has no attribute 'nonsense'$"
            ):
                getattr(owner, "nonsense")  # noqa: B009
            assert not hasattr(owner, "_nonsense")
        future.result(timeout=10)
