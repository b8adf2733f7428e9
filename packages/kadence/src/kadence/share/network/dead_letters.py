"""Looks whether the group's dead letters go where they should, and warns if they do not (KIP-1191). Sans-IO.

No broker tells a member that its group's dead letters are lost. So with the first assignment of a subscription a member
asks for the settings of its group, and if they name a topic, for those of the topic and of a broker. Nothing waits for
the answers. A member that may not see the settings says nothing of it.
"""

from __future__ import annotations

from typing import Any, Final

from kadence.client.dead_letter_topics import (
    BROKER_KEYS,
    COPIES,
    GROUP_KEYS,
    TOPIC,
    TOPIC_KEYS,
    Settings,
    faults_of,
    is_legal,
    warning,
)
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.consumer.group.membership import ClusterView
from kadence.errors import KafkaError, MalformedMessageError, for_code
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.share.keys import ShareKeys

__all__ = ["DeadLetterLook"]

log = logger("kadence.share")

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_AGAIN_MS: Final = 1_000
"""The time after which a failed look is repeated, once: a new topic takes a moment to spread, too."""


class DeadLetterLook:
    """See the top of the file."""

    def __init__(self, config: ShareKeys, metadata: ClusterView) -> None:
        self._config = config
        self._metadata = metadata
        self._read: frozenset[str] = frozenset()
        self._may_repeat = True
        self._due = FOREVER
        self._asked: Request | None = None
        # The settings of the group, once they are known.
        self._group: Settings | None = None
        self._told: str | None = None

    def begin(self, now: int, read: frozenset[str]) -> None:
        """The member has partitions of these topics, to which it is subscribed."""
        if read != self._read:
            self._read, self._may_repeat = read, True
            self._look(now)

    def poll(self, now: int) -> Poll:
        if now < self._due:
            return NOTHING if self._due == FOREVER else Poll(wake_at=self._due)
        self._due = FOREVER
        self._asked = self._about_group(now) if self._group is None else self._about_topic(now, self._group)
        return Poll([self._asked])

    def on_response(self, now: int, completed: Completed) -> None:
        if completed.request is not self._asked:
            return
        self._asked = None
        try:
            if completed.error is not None:
                raise completed.error
            self._take(now, {each.resource_type: each for each in completed.response.results})
        except KafkaError as error:
            if not error.retriable or not self._repeats(now):
                log.debug("group %s: its dead letter topic cannot be looked at: %s", self._group_id, error)

    @property
    def _group_id(self) -> str:
        return self._config.group_id or ""

    def _look(self, now: int) -> None:
        self._due, self._asked, self._group = now, None, None

    def _repeats(self, now: int) -> bool:
        """Look once more, later; False if this was the second time."""
        repeats, self._may_repeat = self._may_repeat, False
        if repeats:
            self._look(now + _AGAIN_MS)
        return repeats

    # ------------------------------------------------------------ asking

    def _about_group(self, now: int) -> Request:
        return self._request(now, ANY_NODE, DescribeConfigsResource(_GROUP, self._group_id, [*GROUP_KEYS]))

    def _about_topic(self, now: int, group: Settings) -> Request:
        # A broker knows its own settings only.
        node_id = min(self._metadata.cluster.nodes, default=ANY_NODE)
        asked = [DescribeConfigsResource(_BROKER, str(node_id), [*BROKER_KEYS])]
        if is_legal(group[TOPIC]):
            asked.append(DescribeConfigsResource(_TOPIC, group[TOPIC], [*TOPIC_KEYS]))
        return self._request(now, node_id, *asked)

    def _request(self, now: int, node_id: int, *asked: DescribeConfigsResource) -> Request:
        message = DescribeConfigsRequest(resources=[*asked])
        return Request(message, node_id, add_ms(now, self._config.request_timeout_ms))

    # ------------------------------------------------------------ answers

    def _take(self, now: int, results: dict[int, Any]) -> None:
        if self._group is None:
            self._group = _settings(results.get(_GROUP))
            if self._group.get(TOPIC):
                self._due = now
        else:
            self._judge(now, self._group, results)

    def _judge(self, now: int, group: Settings, results: dict[int, Any]) -> None:
        topic, found = group[TOPIC], results.get(_TOPIC)
        is_there = is_legal(topic) and (found is None or found.error_code != ec.UNKNOWN_TOPIC_OR_PARTITION)
        faults = tuple(
            faults_of(
                topic,
                _settings(results.get(_BROKER)),
                _settings(found) if is_there else None,
                copies=group.get(COPIES) == "true",
            )
        )
        says = warning(self._group_id, topic, faults, is_read=topic in self._read)
        if says is None or says == self._told or (not is_there and self._repeats(now)):
            return
        self._told = says
        log.warning("%s", says)


def _settings(result: Any) -> Settings:
    """Of one resource in an answer; raises its error."""
    if result is None:
        raise MalformedMessageError("DescribeConfigs was answered without what was asked for")
    if result.error_code:
        raise for_code(result.error_code, result.error_message)
    return {each.name: each.value or "" for each in result.configs}
