"""The state of the group coordinator (groups, offsets, timers), and the results of the present step.

Kafka's term: one shard of the coordinator owns some groups, and runs one request at a time. A rule changes
durable state only by `Shard.write`, which replays the record at once: so the state that is loaded from the log is
the state before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kadence_broker.coordinator.classic.group import ClassicGroup
from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.effects import Answer, Caller, GroupOutcome
from kadence_broker.coordinator.groups import Group
from kadence_broker.coordinator.offsets.store import OffsetStore
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.share.state import NoState, ShareState, StateRequest
from kadence_broker.coordinator.timers import Timers
from kadence_broker.coordinator.topics import TopicImages

__all__ = ["Shard"]


class Shard:
    """Groups with their timers. The rules add records and answers; `GroupCoordinator` takes them out."""

    __slots__ = (
        "_answers",
        "_records",
        "_replay",
        "_state_requests",
        "config",
        "group_configs",
        "groups",
        "new_id",
        "offsets",
        "share_state",
        "timers",
        "topics",
        "wall",
    )

    def __init__(
        self,
        config: CoordinatorConfig,
        new_id: Callable[[], str],
        topics: TopicImages,
        wall: Callable[[int], int],
        replay: Callable[[Shard, Record], None],
        share_state: ShareState | None = None,
    ) -> None:
        self.config = config
        self.new_id = new_id
        self.topics = topics
        self.wall = wall
        """Turns ``now`` into the time of day in ms: for records, since a monotonic clock restarts with each boot."""
        self.groups: dict[str, Group] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        """The settings of single groups; see `kadence_broker.coordinator.group_settings`."""
        self.offsets = OffsetStore()
        self.share_state: ShareState = share_state or NoState()
        self.timers = Timers()
        self._replay = replay
        self._records: list[Record] = []
        self._answers: list[Answer] = []
        self._state_requests: list[StateRequest] = []

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The group if it is a classic one."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def write(self, key: Any, value: Any | None, *, producer: tuple[int, int] | None = None) -> None:
        """Change the state by a record: it takes effect now, and is returned with this step's answers."""
        record = Record(key, value, producer)
        self._replay(self, record)
        self._records.append(record)

    def answer(self, caller: Caller, response: Any) -> None:
        self._answers.append(Answer(caller, response))

    def request_state(self, request: StateRequest) -> None:
        """Ask for a change of share-partitions after this step is stored."""
        self._state_requests.append(request)

    def take(self) -> GroupOutcome:
        """Return the results of this step, and start the next."""
        outcome = GroupOutcome(self._records, self._answers, self._state_requests)
        self._records, self._answers, self._state_requests = [], [], []
        return outcome
