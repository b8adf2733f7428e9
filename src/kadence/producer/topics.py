"""What the producer knows of the cluster: one immutable `Cluster`, asked for when needed (sans-IO).

Application threads read `cluster` and add to `wanted` under the producer's lock; the network thread polls.
"""

from __future__ import annotations

import logging
import threading

from kadence.clock import FOREVER, add_ms
from kadence.config import ProducerConfig
from kadence.connection.backoff import Backoff
from kadence.connection.cluster import Cluster, apply
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.errors import KafkaError
from kadence.producer.intake import Place
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic

__all__ = ["Topics"]

_log = logging.getLogger("kadence.producer")


class Topics:
    """See the head of this file.

    Args:
        places: what callers derived from ``cluster``; emptied, under the lock, whenever that changes.

    Attributes:
        cluster: what is known now. answers: how many answers and failures there were: a caller that saw no
            answer since it asked waits for one more.
        last_error: why the last request failed, if it did. failure: the same if it will not pass by itself.
    """

    def __init__(
        self, config: ProducerConfig, gate: threading.Condition, places: dict[str, Place] | None = None
    ) -> None:
        self._places: dict[str, Place] = {} if places is None else places
        self._config = config
        self._gate = gate
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._asked: Request | None = None
        self._wanted: set[str] = set()
        self._is_stale = False
        self._refresh_at = FOREVER
        self.cluster = Cluster()
        self.answers = 0
        self.failure: KafkaError | None = None
        self.last_error: KafkaError | None = None

    def want(self, topic: str) -> None:
        """Ask for ``topic`` at once, and keep it known from now on. Under the producer's lock."""
        self._wanted.add(topic)
        self._is_stale = True

    def refresh(self) -> None:
        """Ask again: a broker's answer contradicts what we know."""
        self._is_stale = True

    def poll(self, now: int) -> tuple[Request | None, int]:
        """The request to send now, if any, and when to ask again."""
        if self._asked is not None or not self._wanted:
            return None, FOREVER
        due = self._backoff.until if self._is_stale else max(self._refresh_at, self._backoff.until)
        if due > now:
            return None, due
        with self._gate:
            names = sorted(self._wanted)
            self._is_stale = False
        message = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
        )
        self._asked = Request(message, ANY_NODE, add_ms(now, self._config.request_timeout_ms), tag=names)
        return self._asked, FOREVER

    def on_response(self, now: int, completed: Completed) -> None:
        self._asked = None
        with self._gate:
            response = completed.response
            if completed.error is not None or response is None:
                self._backoff.failed(now)
                self._is_stale = True
                if completed.error is not None and not completed.error.retriable:
                    self.failure = completed.error
                    self.answers += 1
                self.last_error = completed.error
                _log.info("metadata request failed, repeating: %s", completed.error)
            else:
                self.cluster = apply(self.cluster, response, completed.request.tag)
                self._places.clear()
                self.answers += 1
                self.failure = self.last_error = None
                self._refresh_at = add_ms(now, self._config.metadata_max_age_ms)
                # Even success waits a little before the next request: a topic that is being created or
                # a leader that is being elected would else be asked for in a loop.
                self._backoff.succeeded() if self._is_settled() else self._backoff.failed(now)
            self._gate.notify_all()

    def _is_settled(self) -> bool:
        """Whether all wanted topics are known with leaders."""
        for name in self._wanted:
            topic = self.cluster.topics.get(name)
            if topic is None or topic.error_code or any(p.leader is None for p in topic.partitions):
                return False
        return True
