"""Random requests of share groups to our broker and to real Apache Kafka: finds the first answer that differs.

    python -m tests.interop.sequences share --first 0 --count 300

A sequence has a topic and a group of its own, and members with a connection each. What a step asks comes from the seed
and from what members were given before (`queue_steps`). Our broker is asked first: where it gives records, Kafka may
take a moment to find them (it loads share-partitions, and releases what a closed connection held, in the background).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import uuid4

from tests.broker.wire import Wire
from tests.interop.queue_steps import KINDS, Side, Step, Story

from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence_broker import Broker

__all__ = ["KAFKA_CONFIG", "ODDITIES", "QUEUES", "Difference", "Queues", "compare_queues"]

QUEUES: Final = "share"
"""The name of this mode."""

KAFKA_CONFIG: Final = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}
"""Settings of both brokers."""

ODDITIES: Final = (
    # Kafka serves the fetch of a request while it stores the acknowledgements in it: which is first is chance.
    "what a request releases may be given back by it",
    # Acknowledgements that begin below the start offset, while nothing is in flight: a NullPointerException.
    "an exception in Kafka",
    # When what was held of deleted records has been answered, Kafka's start offset goes back to them, and the next
    # answer brings nothing. Where each of them has a state of its own it throws, and does not forget them.
    "what Kafka makes of deleted records that were held",
)

_PARTITIONS: Final = 2
_STEPS: Final = 40
_GROUP: Final = 32
_AT_ONCE: Final = 4
_READY_S: Final = 60.0
_PAUSE_S: Final = 0.15
"""Kafka's time for what it does in the background; ours does it at once."""
_LONG_PAUSE_S: Final = 2.0
"""The same where an answer differed: no answer shows when Kafka is done, and on a busy machine it takes longer."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a sequence; ``excused`` is the name of Kafka's oddity."""

    seed: int
    lines: tuple[str, ...]
    ours: Any
    kafkas: Any
    excused: str | None

    def __str__(self) -> str:
        steps = [f"  {line}" for line in self.lines]
        told = [f"  ours     {self.ours}", f"  Kafka's  {self.kafkas}"]
        return "\n".join([f"seed {self.seed} ({self.excused})", *steps, *told])


class Queues:
    """Our broker and real Kafka, with a topic and a group for each of ``count`` sequences."""

    def __init__(self, ours: Broker, kafka: str, count: int, pause_s: float = _PAUSE_S) -> None:
        self._addresses = (ours.bootstrap_servers, kafka)
        prefix = f"queue-{uuid4().hex[:8]}"
        self._names = [f"{prefix}-{number}" for number in range(count)]
        self._controls = [Wire(address) for address in self._addresses]
        self._sides = [
            self._prepare(address, control, pause)
            for address, control, pause in zip(self._addresses, self._controls, (0.0, pause_s), strict=True)
        ]

    def close(self) -> None:
        for side in [*self._sides[0].values(), *self._sides[1].values()]:
            side.close()
        for control in self._controls:
            control.sock.close()

    def _prepare(self, address: str, control: Wire, pause_s: float) -> dict[str, Side]:
        kept = [CreatableTopicConfig("retention.ms", "-1")]
        topics = [CreatableTopic(name, _PARTITIONS, 1, configs=kept) for name in self._names]
        made = control.call(CreateTopicsRequest(topics, 30_000))
        edit = AlterableConfig("share.auto.offset.reset", 0, "earliest")
        groups = [AlterConfigsResource(_GROUP, name, [edit]) for name in self._names]
        control.call(IncrementalAlterConfigsRequest(groups))
        control.call(FindCoordinatorRequest(coordinator_keys=[self._names[0]]))
        control.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self._names[0]]))
        deadline = time.monotonic() + _READY_S
        while control.call(InitProducerIdRequest("queues", 60_000)).error_code != codes.NONE:
            assert time.monotonic() < deadline, "the transaction coordinator does not get ready"
            time.sleep(0.05)
        self._initialise(control, deadline)
        sides = {
            each.name: Side(address, control, each.name, bytes(each.topic_id), pause_s)
            for each in made.topics
        }
        for side in sides.values():
            side.load(_PARTITIONS)
        for side in sides.values():
            side.loaded()
        return sides

    def _initialise(self, control: Wire, deadline: float) -> None:
        """Have a member join each group, so that the share-partitions are initialised, and leave."""
        epochs = dict.fromkeys(self._names, 0)
        while epochs:
            assert time.monotonic() < deadline, f"groups do not get ready: {list(epochs)[:3]}"
            for name, epoch in list(epochs.items()):
                beat = ShareGroupHeartbeatRequest(name, "first", epoch, subscribed_topic_names=[name])
                told = control.call(beat)
                if told.error_code == codes.NONE:
                    epochs[name] = told.member_epoch
                    if told.assignment is not None and told.assignment.topic_partitions:
                        control.call(ShareGroupHeartbeatRequest(name, "first", -1))
                        del epochs[name]
            time.sleep(0.05)

    def run(self, seed: int) -> Difference | None:
        """One sequence; its first difference."""
        story = Story(random.Random(f"share {seed}"), _PARTITIONS)
        name = self._names.pop()
        sides = [each.pop(name) for each in self._sides]
        lines: list[str] = []
        try:
            for number in range(_STEPS):
                kind = story.dice.choices(list(KINDS), list(KINDS.values()))[0]
                step: Step | None = kind(story)
                if step is None:
                    continue
                ours = step.ask(sides[0], False)
                kafkas = step.ask(sides[1], _gives(ours))
                lines.append(f"#{number} {step.text} -> {ours}")
                if ours != kafkas:
                    return Difference(seed, tuple(lines), ours, kafkas, _excuse(step, lines, ours, kafkas))
                step.learn(ours)
        finally:
            for side in sides:
                side.close()
        return None


def _excuse(step: Step, lines: list[str], ours: Any, kafkas: Any) -> str | None:
    race, exception, deleted = ODDITIES
    if not (isinstance(ours, dict) and isinstance(kafkas, dict)):
        return None
    if kafkas.get("error") == "UNKNOWN_SERVER_ERROR":
        return exception
    if step.races:
        return race
    told = ours.get("data", {}), kafkas.get("data", {})
    unlike = [each for each in told[0].keys() | told[1].keys() if told[0].get(each) != told[1].get(each)]
    if unlike and all(any(f" DeleteRecords({each}," in line for line in lines) for each in unlike):
        return deleted
    return None


def _gives(answer: Any) -> bool:
    """Whether an answer has records."""
    return isinstance(answer, dict) and any(each.get("acquired") for each in answer.get("data", {}).values())


def compare_queues(seeds: range, kafka: str) -> Iterator[Difference | None]:
    """Run sequences, some at once, as they mostly wait; what each found.

    A sequence that differs runs again with long pauses: what differs then does not come from Kafka's threads.
    """

    def run(ours: Broker, some: range) -> list[Difference | None]:
        found = run_with(ours, some, _PAUSE_S)
        suspects = [each.seed for each in found if each is not None and each.excused is None]
        again = run_with(ours, suspects, _LONG_PAUSE_S) if suspects else []
        slowly = dict(zip(suspects, again, strict=True))
        return [slowly[each.seed] if each is not None and each.seed in slowly else each for each in found]

    def run_with(ours: Broker, some: Sequence[int], pause_s: float) -> list[Difference | None]:
        queues = Queues(ours, kafka, len(some), pause_s)
        try:
            return [queues.run(seed) for seed in some]
        finally:
            queues.close()

    with Broker(config=KAFKA_CONFIG) as ours, ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = [part for at in range(_AT_ONCE) if (part := seeds[at::_AT_ONCE])]
        for found in pool.map(partial(run, ours), parts):
            yield from found
