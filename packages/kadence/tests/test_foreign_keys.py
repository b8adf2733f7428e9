"""Settings of other clients: none is dropped silently, and for what people write most the error has ours."""

from __future__ import annotations

import pytest

from kadence.config import ClientConfig, ConsumerConfig, ProducerConfig
from kadence.errors import ConfigError


def refusal(name: str, client: type[ClientConfig]) -> str:
    """What a client says of a key."""
    with pytest.raises(ConfigError) as error:
        client.parse({"bootstrap.servers": "localhost:9092", name: "x"})
    return str(error.value)


@pytest.mark.parametrize(
    ("client", "name", "sentence"),
    [
        (ConsumerConfig, "socket.timeout.ms", "is another client's name: here it is 'request.timeout.ms'"),
        (ConsumerConfig, "ssl_cafile", "here it is 'ssl_ca_location'"),
        (ConsumerConfig, "stats_cb", "is another client's key: call metrics()"),
        (ProducerConfig, "stats_cb", "is another client's key: call metrics()"),
        (ProducerConfig, "max_batch_size", "here it is 'batch_size'"),
        (
            ConsumerConfig,
            "compression.codec",
            "is a key of the producer, not of the consumer (here it is 'compression.type')",
        ),
        (ConsumerConfig, "linger.ms", "is a key of the producer, not of the consumer"),
        (ProducerConfig, "group.id", "is a key of the consumer, not of the producer"),
        (ConsumerConfig, "session.timeout", "did you mean 'session.timeout.ms'?"),
        (ConsumerConfig, "ssl.engine.location", "unknown consumer configuration key 'ssl.engine.location'"),
        (ConsumerConfig, "dr_msg_cb", "docs/configuration.md lists all keys"),
    ],
)
def test_a_key_that_is_not_ours(client: type[ClientConfig], name: str, sentence: str) -> None:
    assert sentence in refusal(name, client)


@pytest.mark.parametrize("word", ["smallest", "end", "error"])
def test_librdkafkas_words_for_a_reset_are_refused_with_ours(word: str) -> None:
    with pytest.raises(ConfigError, match="is not one of earliest, latest, none"):
        ConsumerConfig.parse({"bootstrap.servers": "localhost:9092", "auto.offset.reset": word})
