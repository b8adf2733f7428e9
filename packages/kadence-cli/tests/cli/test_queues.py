"""``kadence groups`` on share groups (queues) of the embedded broker. What single looks mean: `test_why_queues`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.admin.share_member import ShareMember
from tests.cli.conftest import Run
from tests.patience import until

from kadence import Admin, Producer, TopicPartition
from kadence_broker import Broker
from kadence_cli.top.gathering import Gatherer, Model, Wish
from kadence_cli.top.rows import group_summary
from kadence_cli.why import command
from kadence_testing import FakeClock

JOBS = TopicPartition("jobs", 0)
EARLIEST = ("groups", "config", "work", "--set", "share.auto.offset.reset=earliest")


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    """A topic ``jobs`` with 9 records in its first partition of two."""
    broker.create_topic("jobs", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(9):
            producer.send("jobs", b"%d" % number, b"k%d" % number, partition=0)
    with Admin(bootstrap_servers=broker.bootstrap_servers, client_id="worker") as admin:
        yield admin


@pytest.mark.usefixtures("admin")
def test_a_new_queue_gets_its_place_and_loses_it(kadence: Run) -> None:
    words = ("groups", "reset", "work", "--type", "share", "--topic", "jobs", "--to", "latest")
    dry, real = kadence(*words, "--dry-run"), kadence(*words)
    assert dry.rows == real.rows
    assert "nothing was moved" in dry.err
    assert [(row["from"], row["to"]) for row in real.rows] == [(None, 9), (None, 0)]
    listed = [{"group": "work", "state": "Empty", "type": "share", "protocol": "share"}]
    assert kadence("groups", "list", "--type", "share", "--type", "streams").rows == listed
    assert kadence("groups", "list", "--type", "consumer").rows == []
    (about,) = kadence("groups", "describe", "w*").rows
    assert (about["type"], about["state"], about["assignor"]) == ("share", "Empty", "simple")
    moved = kadence("groups", "reset", "work", "--topic", "jobs:0", "--to", "-5")
    assert [(row["from"], row["to"]) for row in moved.rows] == [(9, 4)]
    first, _ = kadence("groups", "lag", "work").rows
    assert (first["committed"], first["start"], first["lag"], first["above"]) == (None, 4, 5, 0)
    assert "committed" not in kadence("groups", "lag", "work", "--wide").out.splitlines()[0]

    other = kadence("groups", "reset", "work", "--type", "consumer", "--topic", "jobs", "--to", "latest")
    assert (other.status, other.err) == (
        1,
        "kadence groups: 'work' is a share group; delete it first, or choose another name\n",
    )
    part = kadence("groups", "forget", "work", "--topic", "jobs:0")
    assert (part.status, "it forgets a topic as a whole" in part.err) == (2, True)
    assert [row["deleted"] for row in kadence("groups", "forget", "work", "--topic", "jobs").rows] == [4, 0]
    assert kadence("groups", "delete", "work").rows == [{"group": "work"}]
    assert kadence("groups", "lag", "work").err.startswith("kadence groups: there is no group 'work'; ")


def test_a_queue_with_members(kadence: Run, admin: Admin) -> None:
    changed = {"group": "work", "key": "share.auto.offset.reset", "value": "earliest", "default": False}
    assert changed in kadence(*EARLIEST).rows, "before the group exists"
    one, two = ShareMember(admin, "work", "jobs"), ShareMember(admin, "work", "jobs")
    one.settle(1)
    two.settle(1)
    rows = kadence("groups", "describe", "work").rows
    assert sorted(row["partitions"] for row in rows) == [["jobs:0"], ["jobs:1"]]
    nowhere = kadence("groups", "lag", "work")
    assert [(row["start"], row["lag"], row["above"]) for row in nowhere.rows] == [(None, None, 0)] * 2
    assert nowhere.err.startswith(
        "share group 'work' has no place yet in jobs:0-1: it begins by share.auto.offset."
    )
    holder = one if JOBS in one.partitions else two
    holder.fetch(JOBS)
    holder.acknowledge(JOBS, 3, 4)
    first, second = kadence("groups", "lag", "work").rows
    assert (first["start"], first["end"], first["lag"], first["above"]) == (0, 9, 7, 2)
    assert (second["start"], second["lag"], second["member"]) == (None, None, "worker")
    refused = kadence("groups", "reset", "work", "--topic", "jobs", "--to", "earliest")
    assert "group 'work' has live members (it is in state Stable); stop its consumers first" in refused.err
    three = ShareMember(admin, "work", "jobs")

    def is_shared() -> bool:
        for each in (one, two, three):
            each.heartbeat()
        return "worker, worker" in {row["member"] for row in kadence("groups", "lag", "work").rows}

    until(is_shared, what="two members share a partition")


@pytest.mark.usefixtures("admin")
def test_settings_of_a_queue(kadence: Run) -> None:
    shown = {row["key"]: row["value"] for row in kadence("groups", "config", "work", "--all").rows}
    assert shown["share.isolation.level"] == "read_uncommitted"
    kadence("groups", "reset", "work", "--type", "share", "--topic", "jobs", "--to", "earliest")
    keys = {row["key"].partition(".")[0] for row in kadence("groups", "config", "work", "--all").rows}
    assert keys == {"share", "errors"}
    letters = ("groups", "config", "work", "--set")
    for topic, fault in (
        ("dead", "its name does not begin with 'dlq.'"),
        ("dlq.dead", "it does not exist, and the brokers do not create it"),
    ):
        refused = kadence(*letters, f"errors.deadletterqueue.topic.name={topic}")
        assert (refused.status, refused.out) == (1, "")
        assert (
            f"brokers would not write dead letters of 'work' to '{topic}', and rejected records"
            in refused.err
        )
        assert fault in refused.err
    kadence("topics", "create", "dlq.dead", "--config", "errors.deadletterqueue.group.enable=true")
    kadence("groups", "reset", "work", "--type", "share", "--topic", "dlq.dead", "--to", "earliest")
    refused = kadence(*letters, "errors.deadletterqueue.topic.name=dlq.dead")
    assert refused.status == 1
    assert "'work': the group reads its own dead letter topic dlq.dead: what fails there" in refused.err
    kadence("groups", "forget", "work", "--topic", "dlq.dead")
    taken = kadence(*letters, "errors.deadletterqueue.topic.name=dlq.dead")
    assert (taken.status, taken.err) == (0, "")
    assert {
        "group": "work",
        "key": "errors.deadletterqueue.topic.name",
        "value": "dlq.dead",
        "default": False,
    } in (taken.rows)


def test_top_shows_a_queue(admin: Admin, broker: Broker) -> None:
    admin.alter_share_group_offsets("work", {JOBS: 0})
    member = ShareMember(admin, "work", "jobs").settle(2)
    member.fetch(JOBS)
    member.acknowledge(JOBS, 3, 4)
    gatherer = Gatherer({"bootstrap.servers": broker.bootstrap_servers}, lambda _: None, delay=1)
    try:
        model = Model()
        model.add(gatherer.round(Wish(groups=("work",))))
    finally:
        gatherer.close()
    assert model.refused == {}
    history = model.history("work")
    assert (history.total.lag, history.offsets(JOBS)) == (7, (2, 9)), "two records are done"
    about, progress = group_summary(history)
    assert about.startswith("Stable, share, epoch ")
    assert progress.startswith("lag 7, ")


@pytest.fixture
def why(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[ShareMember | None], dict[str, Any]]:
    """The worst reason of the group ``work``. Between two looks a second passes; a member stays by its heartbeats."""
    clock = FakeClock()

    def found(member: ShareMember | None) -> dict[str, Any]:
        def pause(seconds: float) -> None:
            clock.advance(round(seconds * 1000))
            if member is not None:
                member.heartbeat()

        monkeypatch.setattr(command, "pause", pause)
        monkeypatch.setattr(command, "clock", clock)
        ran = kadence("groups", "why", "work", "--for", "12")
        assert ran.status == command.FOUND, ran.err
        return dict(json.loads(ran.out.splitlines()[0]))

    return found


def test_why_a_queue_stands_still(
    kadence: Run, admin: Admin, why: Callable[[ShareMember | None], dict[str, Any]]
) -> None:
    member = ShareMember(admin, "work", "jobs").settle(2)
    found = why(member)
    assert (found["reason"], found["partitions"], found["details"]["reset"]) == (
        "no-place",
        ["jobs:0"],
        "latest",
    )
    kadence(*EARLIEST)
    assert why(member)["reason"] == "nothing-done"
    member.fetch(JOBS)
    member.acknowledge(JOBS, 1, 3)
    found = why(member)
    assert (found["reason"], found["held"], found["details"]["key"]) == ("nothing-done", 6, "k0")
    member.leave()
    found = why(None)
    assert (found["reason"], found["held"]) == ("no-members", 6)


@pytest.mark.usefixtures("admin")
def test_records_of_a_queue_are_printed_and_accepted(kadence: Run) -> None:
    kadence(*EARLIEST)
    ran = kadence("consume", "jobs", "--share", "work", "-n", "4")
    assert (ran.status, ran.err.splitlines()[-1]) == (0, "4 records")
    assert [row["offset"] for row in ran.rows] == [0, 1, 2, 3]
    assert {row["delivery_count"] for row in ran.rows} == {1}
    (first, *_) = kadence("groups", "lag", "work").rows
    assert (first["start"], first["lag"]) == (0, 5), "the printed ones are accepted, and no others"
    rest = kadence("consume", "jobs", "--share", "work", "--format", "values", "-n", "5")
    assert rest.out.splitlines() == ["4", "5", "6", "7", "8"]
    assert kadence("produce", "copy", stdin=ran.out.encode()).err == "4 records delivered to copy\n"


@pytest.mark.usefixtures("admin")
def test_a_queue_under_latest_says_that_it_has_no_place(kadence: Run) -> None:
    ran = kadence("consume", "jobs", "--share", "work", "--timeout", "0.1")
    assert ran.err.startswith(
        "group 'work' has no place in jobs yet, and share.auto.offset.reset is latest: "
    )
    assert ran.err.endswith("0 records\n")
    command = ran.err.split("`")[1].split()
    assert command[0] == "kadence"
    assert kadence(*command[1:]).status == 0
    assert kadence("consume", "jobs", "--share", "work", "-n", "9").status == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-g other", "--group and --share are two kinds of groups"),
        ("--from -10", "--from does not work with --share: the group has its place"),
        ("--to latest", "--to does not work with --share: a queue has no order"),
        ("-e", "--exit-at-end does not work with --share: a queue has no order"),
        ("-o out.jsonl", "-o reads without a group"),
        ("--stats 1", "--stats does not work with --share"),
    ],
)
def test_options_that_a_queue_cannot_have(kadence: Run, options: str, said: str) -> None:
    ran = kadence("consume", "jobs", "--share", "work", *options.split())
    assert (ran.status, said in ran.err) == (2, True), ran.err
    assert kadence("consume", "jobs:0", "--share", "work").err.endswith("name the topic alone\n")


def test_why_share_consumers_cannot_join(
    kadence: Run, admin: Admin, why: Callable[[ShareMember | None], dict[str, Any]]
) -> None:
    admin.alter_consumer_group_offsets("work", {JOBS: 9})
    kadence(*EARLIEST)
    found = why(None)
    assert (found["reason"], found["details"]["type"]) == ("wrong-type", "classic")
