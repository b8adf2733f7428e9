"""What one test has made at a broker that it shares with others: names, topics, clients and faults, and their end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from kadence.testing.pytest_plugin.brokers import KadenceBroker

if TYPE_CHECKING:
    from types import TracebackType

    from kadence.broker.faults import Faults
    from kadence.producer import Producer

__all__ = ["Space"]

_LONGEST: Final = 80
"""Characters of a test's name in the names of its topics and groups; Kafka takes 249 in all."""


class Space:
    """The part of a broker that belongs to one test. Used with ``with``.

    It ends in an order of its own, whatever the order in which a test asked for things: faults go first, so that
    clients can be closed; topics go last, when nobody reads them.
    """

    def __init__(self, broker: Callable[[], KadenceBroker], test: str) -> None:
        self._find_broker = broker
        self._broker: KadenceBroker | None = None
        self.topics: list[str] = []
        self.clients = ExitStack()
        """Consumers, producers, brokers and simulations, closed in the reverse order."""
        self._faults = ExitStack()
        self._injector: Faults | None = None
        self._producer: Producer | None = None
        self._names: dict[str, str] = {}
        # Runs and workers that share a broker differ in the last part.
        self._suffix = f"{re.sub(r'[^A-Za-z0-9_-]+', '-', test).strip('-')[:_LONGEST]}-{uuid4().hex[:8]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with ExitStack() as steps:
            # Each is done though another fails.
            steps.callback(self._delete_topics)
            steps.callback(self.clients.close)
            steps.callback(self._faults.close)

    @property
    def broker(self) -> KadenceBroker:
        """The broker of the run, which starts with the first test that uses it."""
        if self._broker is None:
            self._broker = self._find_broker()
        return self._broker

    def name(self, base: str) -> str:
        """``base`` made unique to this test; the same each time it asks."""
        return self._names.setdefault(base, f"{base}-{self._suffix}")

    def create_topic(self, base: str, partitions: int, config: Mapping[str, str]) -> str:
        from kadence.admin import Admin, NewTopic

        topic = self.name(base)
        with Admin(self.broker.settings) as admin:
            admin.create_topics([NewTopic(topic, partitions, configs=config)])
        self.topics.append(topic)
        return topic

    def producer(self) -> Producer:
        if self._producer is None:
            from kadence.producer import Producer

            self._producer = self.clients.enter_context(Producer(self.broker.settings))
        return self._producer

    def consumer_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords of a consumer: of the test's group, from the beginning, unless ``settings`` say otherwise."""
        return {"group_id": self.name("group"), "auto_offset_reset": "earliest", **settings}

    def faults(self) -> Faults:
        if self._injector is None:
            embedded = self.broker.need_embedded("kadence_faults")
            self._injector = self._faults.enter_context(embedded.faults.scope())
        return self._injector

    def _delete_topics(self) -> None:
        if self.topics:
            from kadence.admin import Admin

            with Admin(self.broker.settings) as admin:
                # The test may have deleted some of them.
                admin.delete_topics(self.topics, raise_errors=False)
