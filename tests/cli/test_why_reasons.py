"""What looks at a group mean; looks, evidence and time are values here. Scenes with brokers: `test_why`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from unittest import mock

import pytest

from kadence import Admin, TopicPartition
from kadence.admin import ConsumerGroupDescription, GroupListing, MemberDescription
from kadence.cli.main import make_parser
from kadence.cli.same_cluster import SameCluster
from kadence.cli.top.local import Process
from kadence.cli.why.command import _no_such
from kadence.cli.why.finding import Finding, Harm
from kadence.cli.why.looks import Cause, Evidence, Look, PartitionLook, SeenRecord
from kadence.cli.why.page import completed, headline, lines, rows
from kadence.cli.why.reasons import findings
from kadence.cli.why.watching import RECENT_MS, Watch

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
    assert found.says == "a (10.0.0.1) is in the group and does not get on with 5 of its partitions"
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
    assert "orders-0 stands at offset 7: 14 bytes, key 'k\\x1b[31m', 65s old" in found.evidence


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
    admin.list_groups.return_value = [GroupListing("carts", "share", "Stable", "share")]
    assert _no_such(admin, "carts") == "'carts' is a share group; this looks at consumer groups"


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
