"""docs/broker.md lists each API that Apache Kafka serves and our broker does not."""

from __future__ import annotations

from tests.broker.wire import Wire
from tests.protocol.real_requests import OF_THIS_KAFKA

import docs
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence_broker.handlers import HANDLERS
from kadence_testing.kafka import Kafka


def test_each_api_of_kafka_is_served_or_listed_as_not_served(kafka: Kafka) -> None:
    with Wire(kafka.bootstrap_servers) as wire:
        answer = wire.call(ApiVersionsRequest("test", "1"))
    not_served = [key for apis in docs.NOT_SERVED.values() for key in apis if key in OF_THIS_KAFKA]
    assert sorted([*HANDLERS, *not_served]) == sorted(each.api_key for each in answer.api_keys)
