"""The programs of `make attack-work`: members of a group that run `Consumer.process`, each on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kadence import (
    AsyncConsumer,
    AsyncRebalanceListener,
    ClosedError,
    Consumer,
    ProducerRecord,
    Record,
    Retry,
    TopicPartition,
    WakeupError,
)
from kadence.errors import ConcurrentAccessError
from kadence.work import Context
from work_account import WrongError

if TYPE_CHECKING:
    from attack_work import Story

__all__ = ["STOP_S", "Member"]

STOP_S = 30
"""So long a member may take to begin, and to end."""


class SeeksOnce(AsyncRebalanceListener):
    """Seeks when a partition comes, the first time."""

    def __init__(self, member: Member, partition: int, to: int) -> None:
        self._member, self._seek = member, TopicPartition(member.story.topic, partition)
        self._to, self._is_due = to, True

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        if not self._is_due or self._seek not in partitions:
            return None
        self._is_due = False
        self._member.story.tell(f"member {self._member.number} seeks {self._seek.partition} to {self._to}")
        self._member.story.account.is_sought(self._seek.partition, self._to)
        # Of an AsyncConsumer it is awaited.
        return self._member.consumer.seek(self._seek, self._to)


class Member:
    """One life of a program, on a thread of its own.

    Attributes:
        ranges: what it reads instead of what the group gives it; `handled` has the places then, and no account does.
    """

    def __init__(
        self,
        story: Story,
        number: int,
        *,
        seek: tuple[int, int] | None = None,
        ranges: dict[TopicPartition, tuple[int, int]] | None = None,
    ) -> None:
        self.story, self.number, self.ranges = story, number, ranges
        self.handled: set[tuple[int, int]] = set()
        self.consumer: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._how, self._ended = "", 0.0
        self._began = threading.Event()
        self._listener: Any = None if seek is None else SeeksOnce(self, *seek)
        self.thread = threading.Thread(target=self._run, name=f"member-{number}", daemon=True)
        self.thread.start()
        if not self._began.wait(STOP_S):
            raise WrongError("a member does not begin")

    def _run(self) -> None:
        try:
            if self.story.draw.kind == "async":
                asyncio.run(self._live())
                return
            with Consumer(self._settings()) as self.consumer:
                if self.ranges:
                    self.consumer.assign(self.ranges)
                else:
                    self.consumer.subscribe(self.story.topic, listener=self._listener)
                self._began.set()
                self.consumer.process(self._handler(), **self._arguments())
        except BaseException as error:  # noqa: BLE001 - looked at by `check`
            self._error = error
        finally:
            self._ended = time.monotonic()
            self._began.set()

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with AsyncConsumer(self._settings()) as self.consumer:
            if self.ranges:
                await self.consumer.assign(self.ranges)
            else:
                await self.consumer.subscribe(self.story.topic, listener=self._listener)
            self._began.set()
            await self.consumer.process(self._handler(), **self._arguments())

    def _settings(self) -> dict[str, Any]:
        story, draw = self.story, self.story.draw
        return {
            "bootstrap.servers": story.servers,
            "group.id": story.group + ("-ranges" if self.ranges else ""),
            "group.protocol": draw.protocol,
            "client.id": f"m{self.number}",
            "auto.offset.reset": draw.reset,
            "auto.commit.interval.ms": story.chance.choice((50, 300, 2000)),
            "metadata.max.age.ms": 2000,
            "max.poll.records": draw.poll_records,
            "isolation.level": "read_committed" if draw.is_transactional else "read_uncommitted",
        }

    def _arguments(self) -> dict[str, Any]:
        story, draw = self.story, self.story.draw
        retry = {
            "memory": Retry(3, backoff=0.01),
            "topic": Retry(3, backoff=0.02, topic=story.topic + ".retry"),
        }
        of_groups = {
            "retry": retry.get(draw.retries),
            "dead_letter": story.topic + ".dead" if draw.has_letters else None,
        }
        return {
            "workers": draw.workers,
            "drain": 8,
            "batch": draw.batch,
            "order": draw.order,
            "transactional_id": f"{story.topic}-{self.number}" if draw.is_transactional else None,
            **({} if self.ranges else of_groups),
        }

    def _handler(self) -> Callable[..., Any]:
        is_batch = self.story.draw.batch is not None

        def handle(given: Any, context: Context) -> Any:
            records = given if is_batch else [given]
            self._begin(records)
            time.sleep(_pause_of(records))
            made = self._end(records, context)
            return made if is_batch else next(iter(made), None)

        async def handle_async(given: Any, context: Context) -> Any:
            records = given if is_batch else [given]
            self._begin(records)
            try:
                await asyncio.sleep(_pause_of(records))
            except BaseException:
                for record in records:
                    self.story.account.is_given_up(record)
                raise
            made = self._end(records, context)
            return made if is_batch else next(iter(made), None)

        return handle if self.story.draw.kind == "threads" else handle_async

    def _begin(self, records: list[Record]) -> None:
        for record in records:
            if not self.ranges:
                self.story.account.begins(record, is_first=record.topic == self.story.topic)

    def _end(self, records: list[Record], context: Context) -> list[ProducerRecord]:
        if self.ranges:
            self.handled.update((record.partition, record.offset) for record in records)
            return []
        for record in records:
            self.story.account.ends(record, context, is_first=record.topic == self.story.topic)
        if not self.story.draw.has_outputs:
            return []
        return [ProducerRecord(self.story.topic + ".out", each.value, each.key) for each in records]

    def end(self, how: str) -> None:
        """``stop``, ``wakeup`` or ``close`` it, and wait for its end.

        Raises:
            WrongError: it does not end in time, or not as it should.
        """
        self._how, begun = how, time.monotonic()
        if how == "close" and self.loop is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                asyncio.run_coroutine_threadsafe(self.consumer.close(), self.loop).result(STOP_S)
        else:
            getattr(self.consumer, how)()
        self.thread.join(STOP_S)
        took = (time.monotonic() if self.thread.is_alive() else self._ended) - begun
        self.story.slowest_s = max(self.story.slowest_s, took)
        if took > STOP_S / 2:
            frame = sys._current_frames().get(self.thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)[-6:])
            raise WrongError(f"{how} of member {self.number} took {took:.1f} s\n{stack}")
        self.check()

    def check(self) -> None:
        """See whether it has ended with an error that it should not end with.

        Raises:
            WrongError: it has.
        """
        error = self._error
        expected: dict[str, tuple[type[BaseException], ...]] = {
            "wakeup": (WakeupError,),
            # `process` may not have begun yet, and finds the consumer closed, or being closed.
            "close": (ClosedError, ConcurrentAccessError, asyncio.CancelledError),
        }
        if error is not None and not isinstance(error, expected.get(self._how, ())):
            raise WrongError(
                f"member {self.number} ended ({self._how}) with {error!r}\n"
                + "".join(traceback.format_exception(error)[-8:])
            )


def _pause_of(records: list[Record]) -> float:
    """Seconds of work; a few records take long."""
    drawn = random.Random(records[0].value).random()
    return 0.05 if drawn > 0.97 else drawn * 0.006
