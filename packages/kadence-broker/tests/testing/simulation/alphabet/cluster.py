"""What a cluster, its operators and a supervisor do to a story's programs: how each such row of the table is done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tests.testing.simulation.alphabet.ledger import AGAIN, DEAD, GROUP, OTHER, TOPIC
from tests.testing.simulation.alphabet.life import MAX_RECORDS, Life
from tests.testing.simulation.alphabet.table import REQUESTS

from kadence.errors import KafkaError
from kadence.protocol import error_codes as codes
from kadence.protocol.tables import API_NAMES
from kadence.protocol.tables import REQUESTS as CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.testing.simulation.alphabet.story import Story

    from kadence_broker.core import BrokerCore
    from kadence_testing.simulation import Program

__all__ = ["Cluster", "request"]

_BY_NAME: Final = {name: CLASSES[key] for key, name in API_NAMES.items() if key in CLASSES}
_CODES: Final = {name: code for code, name in codes.NAMES.items()}
_OF_GROUPS: Final = [each for each in REQUESTS if each not in ("Fetch", "Metadata", "ListOffsets")]
_HOUR_MS: Final = 3_600_000


def request(name: str) -> type[Any]:
    """The class of a request, by Kafka's name."""
    return _BY_NAME[name]


class Cluster:
    """Carries out the rows that are no calls, on a story."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._rng = story.rng
        self._simulation = story.simulation

    @property
    def _core(self) -> BrokerCore:
        """What operators change, when it is there."""
        self._comes_up()
        return self._simulation.broker.core

    def _comes_up(self) -> None:
        """A broker that has crashed is started again."""
        broker = self._simulation.broker
        if not broker.is_up:
            self._simulation.run_until(lambda: broker.is_up, 20)

    def does(self, what: str) -> None:
        """Let it happen."""
        if found := re.fullmatch(r"(\w+) is answered late", what):
            kind, seconds = request(found[1]), self._rng.choice([0.5, 3, 12])
            self._fault(lambda faults: faults.delay(kind, seconds, times=self._rng.randint(1, 2)))
        elif found := re.fullmatch(r"(\w+) is not answered", what):
            kind = request(found[1])
            self._fault(lambda faults: faults.drop(kind, times=self._rng.randint(1, 2)))
        elif found := re.fullmatch(r"refused with (\w+)", what):
            name = self._rng.choice([each for each in _OF_GROUPS if self._story.style.kind in REQUESTS[each]])
            code, times, seconds = (
                _CODES[found[1]],
                self._rng.choice([1, 1, 5, None]),
                self._rng.choice([1, 15]),
            )
            self._story.tell(f"{times or 'any'} x {name} for {seconds} s")
            self._fault(lambda faults: faults.error(request(name), code, times=times), seconds)
        else:
            getattr(self, "_" + re.sub(r"\W", "_", what))()

    def _fault(self, inject: Callable[[Any], Any], seconds: float = 15) -> None:
        self._story.is_ill(seconds)
        self._story.injects(inject, seconds)

    # ------------------------------------------------------------ topics

    def _topic_deleted(self, after: float | None = 30.0, partitions: int | None = None) -> None:
        story = self._story
        core = self._core
        if TOPIC not in core.cluster.topics:
            return
        had = story.delete_topic(TOPIC)
        story.is_ill(0 if after is None else after)
        story.is_touched()
        if after is not None:
            story.later(after, lambda: story.create(TOPIC, partitions or had))

    def _anew(self, records: int, partitions: int = 0, *, is_busy: bool = True) -> None:
        story = self._story
        if is_busy:
            story.write(6)
            story.rests(0.3)
        had = len(self._core.cluster.topics[TOPIC].partitions) if story.has(TOPIC) else 1
        written = story.numbers
        self._topic_deleted(None)
        # A transaction's offsets name the topic, and nobody hears of one that is made anew in the same moment.
        gap = self._rng.choice([0.5, 0.5, 3.0] if story.style.kind == "x" else [0.0, 0.0, 0.5, 3.0])
        count = max(0, written * records // 2)

        story.rests(gap)
        story.create(TOPIC, max(1, had + partitions))
        story.write(count)

    def _topic_made_anew_with_as_many_records(self) -> None:
        self._anew(2)

    def _topic_made_anew_with_fewer_records(self) -> None:
        self._anew(1)

    def _topic_made_anew_with_more_records(self) -> None:
        self._anew(3)

    def _topic_made_anew_with_fewer_partitions(self) -> None:
        self._anew(2, -1)

    def _topic_made_anew_with_more_partitions(self) -> None:
        self._anew(2, 1)

    def _topic_made_anew_while_nobody_reads(self) -> None:
        self._restarted(lambda: self._anew(1, is_busy=False))

    def _topic_made_anew_when_all_is_done(self) -> None:
        self._restarted(lambda: None)
        self._story.rests(3)
        self._anew(3, is_busy=False)

    def _one_of_two_topics_deleted(self) -> None:
        """With records of it in work. What is done of the other one is committed, also if no more is read ahead."""
        story = self._story
        self._comes_up()
        story.write(6, topic=OTHER)
        story.write(3 * MAX_RECORDS, fate=b"ok")
        story.rests(0.3)
        if story.has(OTHER):
            story.delete_topic(OTHER)
            story.is_ill(10)
            story.rests(30)
            story.model.look_at_time()

    def _partitions_added(self) -> None:
        core = self._core
        if self._story.has(TOPIC):
            topic = core.cluster.topics[TOPIC]
            core.cluster.add_partitions(topic, len(topic.partitions) + 1)
            self._story.is_touched()

    def _retention_takes_what_is_done(self) -> None:
        self._comes_up()
        for log, (offset, _) in list(self._story.model.ledger.committed.items()):
            self._story.delete_before(log, offset)

    def _retention_takes_what_was_not_read(self) -> None:
        story = self._story
        story.write(3)
        if not story.has(TOPIC):
            return
        topic = self._core.cluster.topics[TOPIC]
        for partition in topic.partitions:
            is_all = story.is_latest or self._rng.random() < 0.5
            story.delete_before(
                (topic.topic_id, partition.index), partition.high_watermark - (0 if is_all else 1)
            )

    def _retention_takes_retry_records(self) -> None:
        """Of each partition but the last one, while nobody reads."""
        story = self._story

        def takes() -> None:
            topic = self._core.cluster.topics[AGAIN]
            for partition in topic.partitions:
                story.delete_before((topic.topic_id, partition.index), partition.high_watermark - 1)

        story.write(3, fate=b"fails")
        self._restarted(takes)

    def _offsets_are_not_told_while_retry_records_wait(self) -> None:
        """At the start, when nothing is committed of them, and longer than a call waits."""
        self._restarted(lambda: None)

    def before_start(self) -> None:
        """What such a row needs to be there before any program."""
        story = self._story
        if "offsets are not told while retry records wait" in story.names:
            first = story.numbers
            story.write(3, fate=b"fails")
            headers = {
                "attempts": b"1",
                "at": b"0",
                "first": b"0",
                "topic": TOPIC.encode(),
                "partition": b"0",
                "offset": b"0",
            }
            story.write_again(first, [(f"kadence.retry.{name}", value) for name, value in headers.items()])
            self._fault(lambda faults: faults.delay(request("OffsetFetch"), 12, times=2))

    def _retention_by_time(self) -> None:
        """What is old goes soon, where the topic does not keep it for ever."""
        self._story.write(2, fate=b"bad", age_ms=30 * 24 * _HOUR_MS)
        self._story.write(2, fate=b"fails", age_ms=30 * 24 * _HOUR_MS)

    def _old_timestamps(self) -> None:
        self._story.write(3, age_ms=30 * 24 * _HOUR_MS)

    def _timestamps_ahead_of_the_clock(self) -> None:
        self._story.write(1, fate=b"bad", age_ms=-24 * _HOUR_MS)
        self._story.write(1, fate=b"fails", age_ms=-24 * _HOUR_MS)

    def _quiet_for_days(self) -> None:
        """Longer than offsets are kept, which is a minute in these stories."""
        self._story.rests(100)
        self._restarted(lambda: self._story.write(3), after=4)

    # ------------------------------------------------------------ coordinator and brokers

    def _coordinator_moves(self) -> None:
        core = self._core
        self._story.is_ill(5)
        core.lead(core.coordination.topic.coordinator_of(GROUP), self._rng.choice(sorted(core.cluster.nodes)))

    def _leader_moves(self) -> None:
        core = self._core
        if self._story.has(TOPIC):
            self._story.is_ill(5)
            core.lead(core.partition(TOPIC, 0), self._rng.choice(sorted(core.cluster.nodes)))

    def _a_deserialiser_refuses_records(self) -> None:
        self._story.write(2, fate=b"junk")
        self._story.write(2)

    def _a_deserialiser_refuses_a_large_record(self) -> None:
        """It is as large as the topic of dead letters takes, and the headers of its letter come on top."""
        cluster = self._core.cluster
        cluster.configure(cluster.topics[DEAD], {"max.message.bytes": "1000"})
        self._story.write(1, fate=b"junk", size=900)
        self._story.write(2)

    def _letters_are_refused_for_good(self) -> None:
        """By a topic that is compacted, say. It must not go on for ever, and nobody know of it."""
        self._for_good("Produce", codes.INVALID_RECORD, most=8, topic=DEAD, fate=b"bad")

    def _offsets_are_refused_for_good(self) -> None:
        self._for_good("TxnOffsetCommit", codes.TOPIC_AUTHORIZATION_FAILED, most=30, topic=None, fate=b"ok")

    def _for_good(self, name: str, code: int, *, most: int, topic: str | None, fate: bytes) -> None:
        story = self._story
        ends = story.ends
        story.write(1, fate=fate)
        story.is_ill(20)
        fault = story.injects(lambda faults: faults.error(request(name), code, topic=topic), 20)

        story.rests(20)
        if fault.hits > most and story.ends == ends:
            story.model.object_to(f"{name} was refused {fault.hits} times in 20 s with {codes.NAMES[code]}")

    def _letters_are_too_large(self) -> None:
        """Their topic takes less than the one that is read."""
        cluster = self._core.cluster
        cluster.configure(cluster.topics[DEAD], {"max.message.bytes": "1000"})
        self._story.write(1, fate=b"bad", size=1_500)

    def _others_commit_a_transaction(self) -> None:
        self._others("commit")

    def _others_abort_a_transaction(self) -> None:
        self._others("abort")

    def _others_leave_a_transaction_open(self) -> None:
        self._others("open")

    def _a_start_by_time_behind_a_transaction_of_old_records(self) -> None:
        """The marker that ends the transaction is young, and what lies around it is not."""
        self._others("commit", age_ms=2 * _HOUR_MS)
        self._story.rests(2)
        self._story.write(3, age_ms=2 * _HOUR_MS)
        self._story.write(2)
        self._restarted(lambda: None)

    def _others(self, end: str, age_ms: int = 0) -> None:
        story = self._story
        records = [story.new_record() for _ in range(3)]
        written_ms = self._simulation.scheduler.wall_ms() - age_ms if age_ms else None

        async def main(program: Program) -> None:
            settings = {"transactional.id": program.name, "transaction.timeout.ms": 8_000}
            try:
                async with program.producer(settings) as producer:
                    await producer.init_transactions()
                    await producer.begin_transaction()
                    for key, value in records:
                        await producer.send_and_wait(TOPIC, value, key, timestamp=written_ms)
                    await program.sleep({"open": 20.0}.get(end, 0.3))
                    await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
            except KafkaError as error:
                story.tell(f"{program.name}: {error!r}")

        self._simulation.start(f"other{len(self._simulation.programs)}", main)
        story.is_ill(20 if end == "open" else 1)

    def _brokers_away_at_start(self) -> None:
        self._restarted(self._broker_crashes)

    def _broker_crashes(self) -> None:
        broker, seconds = self._simulation.broker, self._rng.choice([0.1, 2, 15])
        if broker.is_up:
            self._story.is_ill(seconds)
            broker.crash()
            self._story.later(seconds, lambda: None if broker.is_up else broker.restart())

    def _broker_stands_still(self) -> None:
        seconds = self._rng.choice([0.2, 2, 8])
        self._story.is_ill(seconds)
        self._simulation.broker.process.freeze(self._simulation.scheduler.now_ms() + round(seconds * 1000))

    # ------------------------------------------------------------ the network

    def _connections_break(self) -> None:
        self._story.is_ill(0)
        self._simulation.network.reset(self._one().name)

    def _program_is_cut_off(self) -> None:
        name, seconds = self._one().name, self._rng.choice([0.5, 3, 12])
        self._story.is_ill(seconds)
        network = self._simulation.network
        network.cut(name)
        self._story.later(seconds, lambda: network.heal(name))

    def _network_is_slow(self) -> None:
        network = self._simulation.network
        self._story.is_ill(10)
        network.delay_ms = self._rng.choice([(0, 20), (5, 300), (0, 1_500)])
        self._story.later(10, lambda: setattr(network, "delay_ms", (0, 2)))

    # ------------------------------------------------------------ members

    def _one(self) -> Life:
        return self._rng.choice(self._story.lives)

    def _killed(self, *, silently: bool = False) -> None:
        program = self._one().program
        self._story.is_ill(10)
        if program.is_running:
            program.kill(silently=silently)
            self._story.later(self._rng.choice([0.2, 3]), lambda: self._story.revive(program))

    def _killed_with_its_machine(self) -> None:
        self._killed(silently=True)

    def _frozen(self, seconds: float = 3) -> None:
        self._story.is_ill(seconds + 5)
        self._one().program.freeze(seconds)

    def _frozen_beyond_its_session(self) -> None:
        """While it works on records, with another member there to take over, which ends after that."""
        story = self._story
        story.write(4)
        first = story.lives[0]
        other = story.another()
        story.later(1.2, lambda: first.program.freeze(14))
        story.later(11.5, other.program.stop)
        story.is_ill(25)

    def _told_to_end(self) -> None:
        self._restarted(lambda: None)

    def _restarted_while_records_come(self) -> None:
        self._restarted(lambda: self._story.write(3), after=3)

    def _restarted(self, meanwhile: Callable[[], object], after: float = 0.0) -> None:
        """All are told to end, something happens when they have, and they are started again."""
        self._story.rests(0.7)
        self._story.ends_all(after)
        meanwhile()
        self._story.starts_all()

    def _another_member_comes(self) -> None:
        self._story.another()

    def _another_member_goes(self) -> None:
        other = self._story.another()
        self._story.later(3, other.program.stop)

    def _hand_over_while_records_come(self) -> None:
        for life in self._story.lives:
            life.plans["revoked"].append("write")
        self._story.another()

    def _handlers_stand_still(self) -> None:
        for life in self._story.lives:
            life.hangs_until = self._story.now + 6

    def _tasks_that_assign_at_once(self) -> None:
        self._one().plans["beside"].append("tasks")
