"""A broker with some records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kadence import Broker, Producer


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    topics = {"t": 1, "numbers": 1, "bad": 1}
    with Broker(topics=topics, config={"auto.create.topics.enable": False}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                # Tests write to t, too.
                for topic in ("t", "numbers"):
                    producer.send(topic, str(number).encode())
            for value in (b"1", b"\xff", b"3"):
                producer.send("bad", value)
        yield broker.bootstrap_servers
