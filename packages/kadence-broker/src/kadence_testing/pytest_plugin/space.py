"""The names, topics, clients and faults of one test on a shared broker, and their removal."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import pytest

from kadence.errors import KafkaError
from kadence.protocol import error_codes
from kadence_testing.pytest_plugin.brokers import KadenceBroker

if TYPE_CHECKING:
    from types import TracebackType

    from kadence.admin import Outcomes
    from kadence.producer import Producer
    from kadence_broker.faults import Faults

__all__ = ["Space"]

_LONGEST: Final = 80
"""Characters of a test's name in the names of its topics and groups; Kafka allows 249 in all."""

_GONE: Final = (error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.GROUP_ID_NOT_FOUND)


class Space:
    """The part of a broker that belongs to one test. Used with ``with``.

    Its parts end in a fixed order: faults first, so that clients can be closed; topics and groups last, when no client
    reads them.
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
            # Each step runs even if another one fails.
            steps.callback(self._delete)
            steps.callback(self.clients.close)
            steps.callback(self._faults.close)

    @property
    def broker(self) -> KadenceBroker:
        """The broker of the run, which starts with the first test that uses it."""
        if self._broker is None:
            self._broker = self._find_broker()
        return self._broker

    def uses_broker(self) -> None:
        """The test has the broker's settings, and may create topics and groups without this object's methods."""
        self._broker = self._find_broker()

    def name(self, base: str) -> str:
        """``base`` made unique to this test; the same in each call."""
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
        """Keywords of a consumer: the test's group, from the beginning, unless overridden by ``settings``."""
        return {"group_id": self.name("group"), "auto_offset_reset": "earliest", **settings}

    def faults(self) -> Faults:
        if self._injector is None:
            embedded = self.broker.need_embedded("kadence_faults")
            self._injector = self._faults.enter_context(embedded.faults.scope())
        return self._injector

    def _delete(self) -> None:
        """Delete the topics and groups that the test leaves. A failed deletion is a warning, not a test failure."""
        if not (self.topics or self._groups_stay):
            return
        from kadence.admin import Admin

        stays: dict[str, KafkaError] = {}
        try:
            with Admin(self.broker.settings) as admin:
                if self.topics:
                    stays |= _refused(admin.delete_topics(self.topics, raise_errors=False))
                # All groups, because the program under test may name its groups itself.
                groups = [each.group_id for each in admin.list_groups()] if self._groups_stay else []
                if groups := [each for each in groups if self._suffix in each]:
                    stays |= _refused(admin.delete_consumer_groups(groups, raise_errors=False))
        except KafkaError as error:
            stays[f"the rest of {self._suffix}"] = error
        if stays:
            told = "; ".join(f"{name} ({error})" for name, error in stays.items())
            _warn(f"kadence could not delete at {self.broker.bootstrap_servers}: {told}")

    @property
    def _groups_stay(self) -> bool:
        """Whether groups of this test may outlive the run, on a broker that runs elsewhere."""
        return self._broker is not None and self._broker.kind == "external" and bool(self._names)


def _refused(outcomes: Outcomes[str, None]) -> dict[str, KafkaError]:
    """The errors of deletions, without topics and groups that did not exist any more."""
    return {name: error for name, error in outcomes.errors.items() if getattr(error, "code", 0) not in _GONE}


def _warn(text: str) -> None:
    try:
        warnings.warn(text, pytest.PytestWarning, stacklevel=1)
    except pytest.PytestWarning:
        # With -W error a warning would fail a test that has passed.
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(text, pytest.PytestWarning, stacklevel=1)
