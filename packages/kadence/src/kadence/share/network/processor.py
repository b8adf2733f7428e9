"""What each event of a share consumer's application means to the managers (KIP-932). Network thread."""

from __future__ import annotations

from collections.abc import Callable

from kadence.consumer import events as m
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.turn import EventProcessor
from kadence.logs import logger
from kadence.share.events import Acknowledge
from kadence.share.network.manager import ShareRequestManager
from kadence.share.network.member import ShareMembership

__all__ = ["ShareEventProcessor"]

log = logger("kadence.share")


class ShareEventProcessor(EventProcessor):
    """Adds the subscription, and acknowledgements."""

    def __init__(
        self,
        member: ShareMembership,
        metadata: MetadataManager,
        requests: ShareRequestManager,
        tell: Callable[[m.BackgroundEvent], None],
    ) -> None:
        super().__init__(member, tell)
        self._member = member
        self._metadata = metadata
        self._requests = requests
        self._steps |= {
            m.Subscribe: self._subscribe,
            m.TopicMetadata: self._topic_metadata,
            Acknowledge: requests.acknowledge,
        }

    def process(self, now: int, event: m.ApplicationEvent) -> None:
        # What was said before leaves before, also before the group is left.
        self._requests.take_said(now)
        super().process(now, event)

    @property
    def _is_member(self) -> bool:
        return self._member.managed

    @property
    def _is_pending(self) -> bool:
        return self._requests.pending

    def answer_left(self, now: int) -> None:
        """The group is left once the sessions are closed, too: nothing is held from then on."""
        if not self._requests.pending or self._nobody_is_there:
            super().answer_left(now)

    def _forget(self) -> None:
        self._member.topics = frozenset()
        self._metadata.need("subscription", frozenset())

    def _subscribe(self, now: int, call: m.Subscribe) -> None:
        if self._leaving:
            self._have_left()
        topics = call.topics or frozenset()
        log.info("subscribes to %s", ", ".join(sorted(topics)))
        self._metadata.need("subscription", topics)
        self._member.topics = topics
        self._member.subscription_changed(now)
        self._answer(call)

    def _topic_metadata(self, now: int, call: m.TopicMetadata) -> None:
        del now
        self._metadata.ask(call)
