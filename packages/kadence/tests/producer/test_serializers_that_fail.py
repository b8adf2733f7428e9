"""What a serialiser says of a value is the cause of what `send` raises, and not its text."""

from __future__ import annotations

from typing import Any

import pytest

from kadence import Producer
from kadence.errors import SchemaRegistryError, SerializationError
from kadence_broker import Broker


class Serializer:
    """Raises this."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("{'name': 'hidden'} do not match"), "ValueError"),
        (KeyError("hidden"), "KeyError"),
        (SerializationError("it is not of its schema"), "SerializationError: it is not of its schema"),
        (SchemaRegistryError("the registry is away"), "the registry is away"),
    ],
)
@pytest.mark.parametrize("field", ["key", "value"])
def test_the_text_of_a_foreign_error_is_only_the_cause(field: str, error: Exception, said: str) -> None:
    with Broker(topics={"t": 1}) as broker:
        record: dict[str, Any] = {field: b"hidden"}
        settings: dict[str, Any] = {f"{field}_serializer": Serializer(error)}
        with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
            with pytest.raises(SerializationError) as caught:
                producer.send("t", **record).result(10)
            assert str(caught.value).endswith(said)
            assert "hidden" not in str(caught.value)
            assert caught.value.__cause__ is error
