"""What looks at a group mean; looks, evidence and time are values here. Scenes with brokers: `test_why`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from unittest import mock

import pytest

from kadence import Admin, TopicPartition
from kadence.admin import ConsumerGroupDescription, GroupListing, MemberDescription
from kadence_cli.main import make_parser
from kadence_cli.same_cluster import SameCluster
from kadence_cli.top.local import Process
from kadence_cli.why.command import _no_such
from kadence_cli.why.finding import Finding, Harm
from kadence_cli.why.looks import Cause, Evidence, Look, PartitionLook, SeenRecord
from kadence_cli.why.page import completed, headline, lines, rows
from kadence_cli.why.reasons import findings
from kadence_cli.why.watching import RECENT_MS, Watch

NOW = 1_700_000_000_000


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def owner(name: str, *numbers: int) -> MemberDescription:
    return MemberDescription(f"{name}-id", None, name, "/10.0.0.1", frozenset(map(tp, numbers)))


def seen(
    committed: Callable[[int], Mapping[int, int]],
    *members: MemberDescription,
    group: str = "report",
    above: int = 0,
    end: int = 1_000,
    seconds: int = 12,
) -> Watch:
    """A group that was looked at each second; ``committed`` says what it had committed by then."""
    watch = Watch(group)
    about = ConsumerGroupDescription(group, "Stable", "classic", "consumer", "range", 1, members)
    for second in range(seconds + 1):
        partitions = {
            tp(number): PartitionLook(offset, 0, end, end, above)
            for number, offset in committed(second).items()
        }
        watch.add(Look(about, partitions), second * 1000, second)
    return watch


def reasons(watch: Watch, evidence: Evidence | None = None) -> list[Finding]:
    return findings(watch, evidence or Evidence(), NOW)


def test_records_that_are_done_above_it_prove_that_it_is_the_record() -> None:
    watch = seen(lambda _: {0: 7, 1: 9}, owner("a", 0, 1), above=40)
    found = reasons(watch)
    assert [(each.reason, each.partitions) for each in found] == [
        ("stuck-record", (tp(0),)),
        ("stuck-record", (tp(1),)),
    ]
    assert "40 records above it are done: it is this record, and not the member" in found[0].evidence


def test_many_partitions_that_stand_are_one_reason() -> None:
    watch = seen(lambda second: {**dict.fromkeys(range(5), 7), 9: second * 80}, owner("a", 0, 1, 2, 3, 4, 9))
    (found,) = [each for each in reasons(watch) if each.reason == "silent-member"]
    assert found.says == "a (10.0.0.1) is in the group and makes no progress in 5 of its partitions"
    assert found.partitions == tuple(map(tp, range(5)))


def test_where_a_process_of_this_machine_stands_is_said() -> None:
    stack = 'File "/srv/app/billing.py", line 12, in charge\n    wait()'
    state = {"member_id": "a-id", "stalls": [{"ended": None, "stack": stack}]}
    evidence = Evidence(
        records={tp(0): SeenRecord(7, 14, b"k\x1b[31m", NOW - 65_000)},
        processes={"a-id": Process("x", 1, state)},
    )
    watch = seen(lambda _: {0: 7}, owner("a", 0))
    (found,) = reasons(watch, evidence)
    assert found.reason == "silent-member"
    assert "it does not poll: it is in charge (billing.py:12)" in found.evidence
    assert "orders:0 stands at offset 7: 14 bytes, key 'k\\x1b[31m', 65s old" in found.evidence


def test_nothing_is_told_before_it_was_looked_at_for_long_enough() -> None:
    watch = seen(lambda _: {0: 7}, owner("a", 0), seconds=5)
    assert reasons(watch) == []
    assert headline(watch, []).startswith("report: 0 reasons so far, looking for 7s more (Stable, 1 member, ")


def test_where_nothing_waited_it_stands_still_from_when_a_record_came() -> None:
    ends = {True: 7, False: 1_000}
    watch = Watch("report")
    about = ConsumerGroupDescription("report", "Stable", "classic", "consumer", "range", 1, (owner("a", 0),))
    for second in range(113):
        end = ends[second < 100]
        watch.add(Look(about, {tp(0): PartitionLook(7, 0, end, end)}), second * 1000, second)
        assert watch.has_stood(tp(0)) == (second >= 112)
    assert watch.stands_for(tp(0)) == 12_000


def test_rebalances_of_long_ago_do_not_count() -> None:
    watch = Watch("report")
    partitions = {tp(0): PartitionLook(7, 0, 7, 7)}
    for second in range(6):
        who = (owner("a", 0), owner("b")) if second % 2 else (owner("a"), owner("c", 0))
        about = ConsumerGroupDescription(
            "report", "Stable", "consumer", "consumer", "uniform", 1, who, second
        )
        watch.add(Look(about, partitions), second * 1000, second)
    assert (watch.rebalances, watch.joined) == (5, {"b": 3, "c": 2})
    (found,) = reasons(watch)
    assert found.reason == "rebalance-loop"
    watch.add(Look(about, partitions), RECENT_MS + 6_000, 0)
    assert (watch.rebalances, watch.joined) == (0, {})
    assert reasons(watch) == []


def test_a_long_look_sees_a_loop_of_minutes() -> None:
    """A member that works for six minutes is out of the group for one of them, with ``--for 600``."""
    watch = Watch("report", patience_ms=600_000)
    partitions = {tp(0): PartitionLook(7, 0, 7, 7)}
    for second in range(0, 601, 10):
        is_there = (second + 180) % 360 < 300
        who = (owner("a", 0), owner("b")) if is_there else (owner("a", 0),)
        about = ConsumerGroupDescription(
            "report",
            "Stable",
            "consumer",
            "consumer",
            "uniform",
            1,
            who,
            (second + 180) // 360 * 2 + (not is_there),
        )
        watch.add(Look(about, partitions), second * 1000, second)
    (found,) = reasons(watch)
    assert (found.reason, found.harm) == ("rebalance-loop", Harm.SLOWS)
    assert "in 10m" in found.says


def described(state: str, *members: MemberDescription, epoch: int | None = None) -> ConsumerGroupDescription:
    kind = "classic" if epoch is None else "consumer"
    return ConsumerGroupDescription("report", state, kind, "consumer", "range", 1, members, epoch)


def looked_at(
    about: Callable[[int], ConsumerGroupDescription],
    partitions: Callable[[int], Mapping[TopicPartition, PartitionLook]],
    seconds: int = 12,
) -> Watch:
    watch = Watch("report")
    for second in range(seconds + 1):
        watch.add(Look(about(second), partitions(second)), second * 1000, second)
    return watch


def behind(_: int) -> dict[TopicPartition, PartitionLook]:
    """Two partitions near their ends, and one that stands far from its own."""
    return {
        tp(0): PartitionLook(58, 0, 60, 60),
        tp(1): PartitionLook(66, 0, 66, 66),
        tp(2): PartitionLook(24, 0, 4_479, 4_479),
    }


@pytest.mark.parametrize("alive", [1, 2])
@pytest.mark.parametrize("phase", [0, 1, 2])
@pytest.mark.parametrize("is_kip848", [False, True])
def test_a_crash_loop_is_one_in_each_phase(alive: int, phase: int, is_kip848: bool) -> None:
    """A group that is read for some seconds of three is not one that nobody reads; the record is named."""

    def about(second: int) -> ConsumerGroupDescription:
        at = second + phase
        epoch = 2 * (at // 3) + (at % 3 >= alive) if is_kip848 else None
        return (
            described("Stable", owner("ship", 0, 1, 2), epoch=epoch)
            if at % 3 < alive
            else described("Empty", epoch=epoch)
        )

    seen_at = SeenRecord(24, 9, b"k10", NOW - 60_000)
    found = reasons(looked_at(about, behind), Evidence(records={tp(2): seen_at}))
    assert [each.reason for each in found] == ["rebalance-loop", "far-behind"]
    assert found[0].harm is Harm.STOPS
    assert (found[1].partitions, dict(found[1].details)["offset"]) == ((tp(2),), 24)
    assert f"offset 24: 9 bytes, key 'k10', {60}s old" in " ".join(found[1].evidence)
    assert "kadence consume orders:2 --from 24 -n 1" in found[1].commands


def test_a_group_whose_members_no_look_meets() -> None:
    """They come and go between two looks; its offsets, or the epochs of a KIP-848 group, say so."""
    empty = described("Empty")
    found = reasons(looked_at(lambda _: empty, behind))
    assert [each.reason for each in found] == ["no-members", "far-behind"]
    assert "they come and go between two looks" in found[0].evidence[1]
    assert "kadence consume orders:2 --from 24 -n 1" in found[0].commands

    def moving(second: int) -> dict[TopicPartition, PartitionLook]:
        return {**behind(second), tp(0): PartitionLook(58 + second, 0, 70 + second, 70 + second)}

    found = reasons(looked_at(lambda _: empty, moving))
    assert [each.reason for each in found] == ["far-behind", "unseen-members"]
    assert found[1].says == "committed offsets move, and none of 13 looks met a member"
    found = reasons(looked_at(lambda second: described("Empty", epoch=second), behind))
    assert [each.reason for each in found] == ["rebalance-loop", "far-behind"]
    assert found[0].says == "12 rebalances in 12s: members come and go, and 13 of 13 looks met none"


def test_a_group_that_its_last_member_left_a_moment_ago() -> None:
    def about(second: int) -> ConsumerGroupDescription:
        return described("Stable", owner("ship", 0, 1, 2)) if second < 9 else described("Empty")

    found = reasons(looked_at(about, behind))
    assert found[0].reason == "no-members"
    assert found[0].says == "no member reads now: the group is Empty, and ship left 3s ago"
    assert found[0].evidence[1].endswith("a longer look decides, --for 120")

    def alone(_: int) -> dict[TopicPartition, PartitionLook]:
        return {tp(2): PartitionLook(24, 0, 600, 600)}

    found = reasons(looked_at(about, alone))
    assert [each.reason for each in found] == ["no-members", "far-behind", "rebalance"]


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
@pytest.mark.parametrize("at", [0, 6, 11, 12])
def test_one_look_that_meets_a_member_does_not_change_the_verdict(at: int, state: str) -> None:
    """Of consumers that crash at once one look of many meets one, be it the last."""

    def about(second: int) -> ConsumerGroupDescription:
        return described(state, owner("ship", 2)) if second == at else described("Empty")

    found = reasons(looked_at(about, lambda _: {tp(2): PartitionLook(24, 0, 600, 600)}))
    assert [each.reason for each in found] == ["no-members", "far-behind", "rebalance"]
    assert found[0].says == (
        "no member reads for long: 12 of 13 looks met no member, and ship joined 0s ago"
        if at == 12
        else f"no member reads now: the group is Empty, and ship left {11 - at}s ago"
    )
    assert found[0].members == ("ship",)


def test_a_group_that_is_just_started_and_reads_is_well() -> None:
    def about(second: int) -> ConsumerGroupDescription:
        return described("Stable", owner("ship", 2)) if second > 9 else described("Empty")

    def read(second: int) -> dict[TopicPartition, PartitionLook]:
        return {tp(2): PartitionLook(24 + 100 * max(0, second - 10), 0, 600, 600)}

    assert {each.harm for each in reasons(looked_at(about, read))} == {Harm.PASSES}


def test_a_look_that_begins_or_ends_in_a_rebalance_says_so() -> None:
    partitions = {tp(0): PartitionLook(7, 0, 7, 7)}
    busy = described("PreparingRebalance", owner("a"))
    well = described("Stable", owner("a", 0))
    for unsettled, told in (
        ({0}, "the look began in a rebalance: a longer one decides"),
        ({12}, "the look ended in a rebalance: a longer one decides"),
        ({0, 12}, "the look began and ended in a rebalance: a longer one decides"),
        ({5}, None),
    ):
        states = [busy if second in unsettled else well for second in range(13)]
        watch = looked_at(states.__getitem__, lambda _: partitions)
        (found,) = reasons(watch)
        assert (found.reason, found.harm) == ("rebalance", Harm.PASSES)
        assert found.says.startswith(f"{len(unsettled)} rebalance")
        assert (told in found.evidence) if told else not any("look" in line for line in found.evidence[:-1])
        assert headline(watch, [found]).startswith(
            "report: nothing harmful seen in 12s (Stable" if 12 not in unsettled else "report: "
        )


def test_how_long_an_offset_stood_is_as_long_as_it_was_looked_at() -> None:
    watch = seen(lambda second: {0: 7, 1: second}, owner("a", 0, 1))
    (found,) = [each for each in reasons(watch) if each.reason == "stuck-record"]
    assert "the committed offset has stood at it for 12s at least" in found.evidence
    watch = seen(lambda second: {0: min(second, 7), 1: second}, owner("a", 0, 1), seconds=20)
    (found,) = [each for each in reasons(watch) if each.reason == "stuck-record"]
    assert "the committed offset has stood at it for 13s" in found.evidence


@pytest.mark.parametrize(
    ("lags", "far"),
    [
        ([0, 0, 400], True),
        ([0, 400], True),
        ([39, 39, 400], True),
        ([40, 40, 400], False),
        ([0, 0, 19], False),
        ([400], False),
        ([0, 400, 400], False),
        ([400, 400, 400], False),
    ],
)
def test_what_is_far_behind_its_siblings(lags: list[int], far: bool) -> None:
    partitions = {tp(n): PartitionLook(500 - lag, 0, 500, 500) for n, lag in enumerate(lags)}
    found = reasons(looked_at(lambda _: described("Empty"), lambda _: partitions))
    assert ("far-behind" in {each.reason for each in found}) == far


@pytest.mark.parametrize("step", [1, -1])
def test_members_that_only_join_or_only_leave_are_no_loop(step: int) -> None:
    """A group that is scaled out, or in, makes as many rebalances as it gets members."""
    names = ["a", "b", "c", "d", "e"][::step]

    def about(second: int) -> ConsumerGroupDescription:
        there = names[: 1 + min(second, 4)] if step > 0 else names[min(second, 4) :]
        return described("Stable", *map(owner, there), epoch=second)

    (found,) = reasons(looked_at(about, lambda _: {tp(0): PartitionLook(7, 0, 7, 7)}))
    assert (found.reason, found.harm) == ("rebalance", Harm.PASSES)
    assert found.says.endswith("b, c, d and 1 more joined" if step > 0 else "b, c, d and 1 more left")


def test_the_only_partition_of_a_topic_is_named_in_a_loop() -> None:
    states = [described("Stable", owner("ship", 0)), described("Empty")] * 7
    found = reasons(looked_at(states.__getitem__, lambda _: {tp(0): PartitionLook(24, 0, 90, 90)}))
    assert [each.reason for each in found] == ["rebalance-loop", "far-behind"]
    assert found[1].says == "orders:0 stands at offset 24"


def test_a_slow_member_may_have_a_slow_handler() -> None:
    watch = seen(
        lambda second: {0: 10 * second, 1: 980 + second, 2: 980 + second},
        owner("slow", 0),
        owner("b", 1),
        owner("c", 2),
    )
    (found,) = reasons(watch)
    assert (found.reason, found.members) == ("slow-member", ("slow",))
    assert found.evidence[-1].startswith("its handler takes long (the likeliest), ")


def test_names_that_strangers_chose_do_no_harm() -> None:
    """They stand in commands that people copy, and on terminals."""
    name = "x; rm -rf / #\x1b[2J"
    watch = seen(lambda _: {0: 7, 1: 9}, owner(name, 0, 1), group=name)
    found = completed(reasons(watch), SameCluster("kafka-1:9092"))
    for each in found:
        for command in each.commands:
            words = shlex.split(command)
            assert words[0] == "kadence"
            assert ";" not in words
            assert words[-2:] == ["-b", "kafka-1:9092"]
    page = [headline(watch, found), *lines(found, 80)]
    assert all(line.isprintable() for line in page)
    assert max(map(len, page[1:])) <= 90, "only commands may be longer than the line"


@pytest.mark.parametrize(
    ("options", "more", "begins", "ends"),
    [
        ("", "-b kafka-1:9092", "kadence", " -b kafka-1:9092"),
        ("-c prod", "", "kadence -c prod", ""),
        ("--config file", "-b kafka-1:9092", "kadence --config file", " -b kafka-1:9092"),
        ("", "-b kafka-1:9092 -X client.id=me", "kadence", " -b kafka-1:9092 -X client.id=me"),
        # Pages are shown to others.
        (
            "-c prod",
            "-X sasl.password=secret -X nonsense=secret",
            "kadence -c prod",
            " -X 'sasl.password=…' -X 'nonsense=…'",
        ),
    ],
)
@pytest.mark.parametrize("command", ["top report", "groups why report"])
def test_commands_name_cluster_login_and_settings_as_this_one_did(
    command: str, options: str, more: str, begins: str, ends: str
) -> None:
    arguments = make_parser().parse_args([*options.split(), *command.split(), *more.split()])
    config = {"bootstrap.servers": arguments.bootstrap_servers or "kafka-of-the-file:9092"}
    (found,) = completed(reasons(seen(lambda _: {0: 7}, owner("a", 0))), SameCluster.of(arguments, config))
    assert found.commands[1] == f"{begins} top report{ends}"


def test_what_follows_a_pipe_stays() -> None:
    cluster = SameCluster("kafka-1:9092", "-c prod")
    assert cluster.command("kadence consume t | jq") == "kadence -c prod consume t -b kafka-1:9092 | jq"


@pytest.mark.parametrize(
    ("cause", "members", "harm"),
    [
        ("no-leader", (), Harm.STOPS),
        ("not-allowed", (), Harm.STOPS),
        ("no-topic", (owner("a", 0),), Harm.STOPS),
        # What a group has committed for a topic that was deleted harms nobody.
        ("no-topic", (), Harm.PASSES),
    ],
)
def test_why_a_partition_cannot_be_looked_at(
    cause: Cause, members: tuple[MemberDescription, ...], harm: Harm
) -> None:
    watch = Watch("report")
    about = ConsumerGroupDescription("report", "Stable", "classic", "consumer", "range", 1, members)
    look = Look(about, {tp(0): PartitionLook(7, trouble="so it is", cause=cause)})
    for second in range(13):
        watch.add(look, second * 1000, second)
    (found,) = reasons(watch)
    assert (found.reason, found.harm) == (cause, harm)
    # The topic may not be there to be described, or not be for this login.
    assert any("describe" in each for each in found.commands) == (cause == "no-leader")


def test_a_group_without_offsets_may_be_one_whose_topics_are_hidden() -> None:
    """Brokers leave out what a login may not describe, and do not say so."""
    watch = Watch("report")
    about = ConsumerGroupDescription("report", "Empty", "classic", "consumer", "range", 1, ())
    for second in range(13):
        watch.add(Look(about, {}), second * 1000, second)
    (found,) = reasons(watch)
    assert (found.reason, found.harm) == ("nothing-seen", Harm.PASSES)
    assert found.evidence == ("it has committed none, or this login may not describe its topics",)


def test_a_group_of_another_kind_is_named() -> None:
    admin = mock.create_autospec(Admin, instance=True)
    admin.list_groups.return_value = [GroupListing("carts", "streams", "Stable", "streams")]
    assert _no_such(admin, "carts") == "'carts' is a streams group; this looks at consumer and share groups"


def test_rows_have_the_same_names_whatever_the_reason() -> None:
    watch = seen(lambda _: {0: 7, 1: 9}, owner("a", 0), above=1)
    made = rows("report", reasons(watch))
    assert len({each["reason"] for each in made}) == 2
    assert {tuple(each) for each in made} == {
        (
            "group",
            "reason",
            "harm",
            "says",
            "partitions",
            "members",
            "held",
            "details",
            "evidence",
            "commands",
        )
    }
