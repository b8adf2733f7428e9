"""What looks at a share group mean; looks, evidence and time are values here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from kadence import TopicPartition
from kadence.admin import (
    ConfigEntry,
    ConsumerGroupDescription,
    DeadLetterQueue,
    MemberDescription,
    ShareGroupDescription,
)
from kadence_cli.main import make_parser
from kadence_cli.why.finding import Finding, Harm
from kadence_cli.why.looks import Evidence, Look, OpenTransaction, PartitionLook, SeenRecord
from kadence_cli.why.page import headline
from kadence_cli.why.reasons import findings
from kadence_cli.why.watching import Watch

NOW = 1_700_000_000_000
At = tuple[int | None, int]
"""A start offset, and how many records above it are done."""


def tp(number: int) -> TopicPartition:
    return TopicPartition("jobs", number)


def member(name: str, *numbers: int) -> MemberDescription:
    return MemberDescription(
        f"{name}-id",
        None,
        name,
        "/10.0.0.1",
        frozenset(map(tp, numbers)),
        member_epoch=3,
        subscription=frozenset({"jobs"}),
    )


def look(places: Mapping[int, At], *members: MemberDescription, end: int = 1_000) -> Look:
    state = "Stable" if members else "Empty"
    about = ShareGroupDescription("queue", state, "simple", 1, members, 3)
    return Look(
        about,
        {
            tp(number): PartitionLook(
                start, 0, end, end, above, waiting=None if start is None else end - start - above
            )
            for number, (start, above) in places.items()
        },
    )


def seen(
    places: Callable[[int], Mapping[int, At]],
    *members: MemberDescription,
    end: int = 1_000,
    seconds: int = 12,
) -> Watch:
    """A queue that was looked at each second; ``places`` says where it was by then."""
    watch = Watch("queue")
    for second in range(seconds + 1):
        watch.add(look(places(second), *members, end=end), second * 1000, second)
    return watch


def settings(**values: str) -> dict[str, ConfigEntry]:
    """Settings that were made: ``_`` stands for a dot."""
    names = {key.replace("_", "."): value for key, value in values.items()}
    return {key: ConfigEntry(key, value, False, False, False) for key, value in names.items()}


def reasons(watch: Watch, evidence: Evidence | None = None) -> list[Finding]:
    found = findings(watch, evidence or Evidence(), NOW)
    for each in found:
        for command in each.commands:
            make_parser().parse_args(shlex.split(command)[1:])
    return found


def test_a_queue_that_is_worked_off_has_no_reason() -> None:
    watch = seen(lambda second: {0: (900 + second * 8, 0)}, member("a", 0), end=1_000)
    assert reasons(watch) == []
    assert headline(watch, []) == "queue: nothing seen in 12s (Stable, 1 member, 1 partition, lag 4)"


def test_lag_is_what_is_not_done() -> None:
    watch = seen(lambda _: {0: (10, 40)}, member("a", 0), end=100)
    assert watch.lag == 50


def test_no_record_is_done() -> None:
    watch = seen(lambda _: {0: (9, 0), 1: (8, 0)}, member("a", 0, 1), member("b", 0, 1))
    evidence = Evidence(records={tp(1): SeenRecord(8, 14, b"k\x1b[31m", NOW - 65_000)})
    (found,) = reasons(watch, evidence)
    assert (found.reason, found.harm) == ("nothing-done", Harm.STOPS)
    assert found.says == "no record of jobs:0-1 was done for 12s at least"
    assert found.members == ("a", "b")
    held, first, causes, longer, patience, unseen = found.evidence
    assert held == "a, b have them; 1,983 records wait"
    assert first == "jobs:1 starts at offset 8: offset 8: 14 bytes, key 'k\\x1b[31m', 65s old"
    assert causes == "its members hold the records and work, are blocked, or do not fetch"
    assert longer == "one record's work may take as long as this look: --for 60 tells more"
    assert patience.startswith(
        "a record that fails is delivered up to 5 times, at last alone, and held for 30s"
    )
    assert unseen.startswith(
        "who holds the records, and how often they were delivered, cannot be seen from outside"
    )


def test_a_start_offset_is_that_before_the_last_change() -> None:
    """Seen on Kafka 4.4.0: after all of ten records were accepted by two requests, it is that before the second."""
    (found,) = reasons(seen(lambda _: {0: (7, 3)}, member("a", 0), end=15))
    assert found.reason == "nothing-done"
    assert "jobs:0: the oldest that is not done is at one of the offsets 7 to 10" in found.evidence
    once = reasons(seen(lambda second: {0: (7, 3 if second < 6 else 5)}, member("a", 0), end=15))
    assert [each.reason for each in once] == ["behind"], (
        "the record at 7 may have been done by the last change"
    )
    twice = reasons(seen(lambda second: {0: (7, 3 + second // 5)}, member("a", 0), end=15))
    assert [each.reason for each in twice] == ["open-record", "behind"]


def test_one_member_may_hold_all_that_can_be_held() -> None:
    watch = seen(lambda _: {0: (0, 0)}, member("a", 0), member("b", 0), end=200)
    evidence = Evidence(
        settings=settings(share_partition_max_record_locks="150", share_record_lock_duration_ms="5000")
    )
    (found,) = reasons(watch, evidence)
    assert (
        "up to 150 records of a partition can be held, all of them by one member: the others then get none"
        in (found.evidence)
    )
    assert not any("--for" in line for line in found.evidence), "it was looked at for longer than a lock"


def test_the_look_is_at_members_that_have_stayed() -> None:
    watch = seen(lambda _: {0: (7, 0)}, seconds=11)
    watch.add(look({0: (7, 0)}, member("new", 0)), 12_000, 12)
    assert [each.reason for each in reasons(watch)] == ["no-members"]


def test_a_record_that_is_not_done_below_others() -> None:
    def places(second: int) -> Mapping[int, At]:
        return {0: (7, second * 5)}

    evidence = Evidence(dead_letters=DeadLetterQueue("dlq.jobs"))
    found = reasons(seen(places, member("a", 0)), evidence)
    assert [(each.reason, each.harm) for each in found] == [
        ("open-record", Harm.SLOWS),
        ("behind", Harm.SLOWS),
    ]
    assert found[0].says == "the record of jobs:0 at offset 7 is not done, and 60 above it are"
    assert any(line.endswith("then it goes to dlq.jobs") for line in found[0].evidence)


def test_a_full_window_gives_out_nothing_new() -> None:
    evidence = Evidence(settings=settings(share_partition_max_record_locks="150"))
    (found,) = reasons(seen(lambda _: {0: (7, 149)}, member("a", 0)), evidence)
    assert (found.reason, found.harm) == ("window-full", Harm.STOPS)
    assert found.says == "jobs:0 gives out nothing new: 149 records from offset 7 on are done, not all"
    (almost, *_) = reasons(seen(lambda _: {0: (7, 148)}, member("a", 0)), evidence)
    assert almost.reason == "nothing-done"


def test_a_queue_without_a_place_under_latest() -> None:
    watch = seen(lambda _: {0: (None, 0)}, member("a", 0))
    (found,) = reasons(watch)
    assert (found.reason, found.harm) == ("no-place", Harm.STOPS)
    assert found.says == (
        "the group has no place in jobs:0: it has accepted nothing there, and share.auto.offset.reset is latest"
    )
    assert found.commands[0] == "kadence groups reset queue --topic jobs --to earliest --dry-run"
    (left,) = reasons(seen(lambda _: {0: (None, 0)}))
    assert (left.reason, left.harm) == ("no-place", Harm.LOSES), "nobody gets what is written now"
    assert reasons(seen(lambda _: {0: (None, 0)}, member("a", 0), end=0)) == [], "there are no records"
    evidence = Evidence(settings=settings(share_auto_offset_reset="earliest"))
    (begun,) = reasons(watch, evidence)
    assert (begun.reason, begun.held) == ("nothing-done", 1_000)
    assert reasons(seen(lambda _: {0: (None, 0)}), evidence) == []


def test_a_dead_letter_topic_that_is_refused() -> None:
    evidence = Evidence(dead_letters=DeadLetterQueue("dead", faults=("its name is wrong",)))
    (found,) = reasons(seen(lambda _: {0: (1_000, 0)}, member("a", 0)), evidence)
    assert (found.reason, found.harm, found.evidence) == (
        "dead-letters-refused",
        Harm.LOSES,
        ("its name is wrong",),
    )


def test_a_dead_letter_topic_that_the_group_reads() -> None:
    evidence = Evidence(dead_letters=DeadLetterQueue("dlq.jobs", is_read=True))
    (found,) = reasons(seen(lambda _: {0: (1_000, 0)}, member("a", 0)), evidence)
    assert (found.reason, found.harm) == ("dead-letters-return", Harm.SLOWS)
    assert found.says == (
        "the group reads its own dead letter topic dlq.jobs: what fails there is written there again, without end"
    )


def test_a_group_of_the_wrong_type() -> None:
    watch = Watch("queue")
    about = ConsumerGroupDescription("queue", "Empty", "classic", "consumer", "", 1, ())
    for second in range(13):
        watch.add(Look(about, {tp(0): PartitionLook(5, 0, 5, 5)}), second * 1000, second)
    (found,) = reasons(watch, Evidence(settings=settings(share_isolation_level="read_committed")))
    assert (found.reason, found.harm) == ("wrong-type", Harm.STOPS)
    assert found.says == "queue is a classic group, and was configured as a share group"
    lock = settings(share_record_lock_duration_ms="20000")
    assert reasons(watch, Evidence(settings=lock)) == [], "the brokers may have it so for all groups"


def test_an_open_transaction_stops_a_queue_that_reads_committed_records() -> None:
    watch = Watch("queue")
    for second in range(13):
        held = look({0: (40, 0)}, member("a", 0), end=100)
        partitions = {at: replace(each, stable=40) for at, each in held.partitions.items()}
        watch.add(replace(held, partitions=partitions), second * 1000, second)
    opened = {tp(0): OpenTransaction(9, 40, "billing", False, NOW - 90_000, 60_000)}
    evidence = Evidence(transactions=opened, settings=settings(share_isolation_level="read_committed"))
    (found,) = reasons(watch, evidence)
    assert (found.reason, found.held) == ("open-transaction", 60)
    assert found.says == "an open transaction of billing holds back readers of committed records"
    assert "open-transaction" not in {each.reason for each in reasons(watch, Evidence(transactions=opened))}


def test_an_open_transaction_holds_up_a_queue_that_begins_at_it() -> None:
    watch = Watch("queue")
    for second in range(13):
        held = look({0: (None, 0), 1: (None, 0)}, member("a", 0, 1), end=100)
        partitions = {
            at: replace(each, stable=0 if at == tp(0) else 40) for at, each in held.partitions.items()
        }
        watch.add(replace(held, partitions=partitions), second * 1000, second)
    committed = settings(share_isolation_level="read_committed", share_auto_offset_reset="earliest")
    opened = {tp(0): OpenTransaction(9, 0, "billing", False, NOW - 90_000, 60_000)}
    held_up, busy = reasons(watch, Evidence(transactions=opened, settings=committed))
    assert (held_up.reason, held_up.partitions, held_up.held) == ("open-transaction", (tp(0),), 100)
    assert "jobs:0: it begins at 0, and 100 offsets wait behind it" in held_up.evidence
    assert (busy.reason, busy.partitions) == ("nothing-done", (tp(1),))
    uncommitted = settings(share_auto_offset_reset="earliest")
    (found,) = reasons(watch, Evidence(transactions=opened, settings=uncommitted))
    assert (found.reason, found.partitions) == ("nothing-done", (tp(0), tp(1)))


def test_deleted_records_and_a_place_behind_the_end() -> None:
    watch = Watch("queue")
    early = PartitionLook(3, 10, 20, 20, waiting=17)
    late = PartitionLook(50, 0, 20, 20, waiting=None)
    about = ShareGroupDescription("queue", "Stable", "simple", 1, (member("a", 0, 1),), 3)
    watch.add(Look(about, {tp(0): early, tp(1): late}), 0, 0)
    gone, beyond = reasons(watch)
    assert (gone.says, gone.held) == ("up to 7 records were deleted before they were done", 7)
    assert gone.harm == beyond.harm == Harm.LOSES
    assert (
        beyond.says
        == "start offsets are beyond the end of jobs:1: the topic was recreated, or they were set so"
    )


def test_members_without_partitions() -> None:
    watch = seen(lambda _: {0: (1_000, 0)}, member("a", 0), member("b"))
    (found,) = reasons(watch)
    assert (found.reason, found.says) == ("no-partitions", "b has no partitions")
    assert found.evidence[0] == "subscribed to jobs"


def test_members_that_come_and_go() -> None:
    watch = Watch("queue")
    for second in range(14):
        watch.add(look({0: (second, 0)}, *([member("a", 0)] if second % 2 else [])), second * 1000, second)
    found = {each.reason: each for each in reasons(watch)}
    assert found["members-come-and-go"].says == "members joined 7 times and left 6 times in 13s"


def test_a_queue_that_is_slower_than_its_producers() -> None:
    watch = Watch("queue")
    for second in range(13):
        end = 10_000 + 100 * second
        watch.add(look({0: (second * 10, 0)}, member("a", 0), end=end), second * 1000, second)
    (found,) = reasons(watch)
    assert (found.reason, found.says) == ("too-slow", "the group is slower than its producers")
    assert found.evidence[0].startswith("in 100/s, done 10/s; ")
    assert found.evidence[1] == "1 member: more can help, several share a partition"
