"""Ten situations and more, each made on the embedded broker, and found by ``kadence groups why`` in one command.

Time is virtual: between two looks the scene goes on for a second of the command's clock.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.cli.conftest import Ran, Run
from tests.cli.test_transactions import leave_hanging
from tests.patience import until

from kadence import Admin, Consumer, Producer, TopicPartition
from kadence_broker import Broker
from kadence_cli.main import make_parser
from kadence_cli.names import spelled
from kadence_cli.why import command
from kadence_testing import FakeClock
from kadence_testing.pytest_plugin import Brokers

GROUP = "report"
Act = Callable[[int], None]


class Scene:
    """A topic ``orders``, a group, and what happens between two looks."""

    def __init__(self, broker: Broker, kadence: Run, stack: ExitStack) -> None:
        self.broker = broker
        self.act: Act = lambda _: None
        self.meanwhile: Callable[[], None] = lambda: None
        self._kadence = kadence
        self._stack = stack
        self.admin = stack.enter_context(Admin(bootstrap_servers=broker.bootstrap_servers))
        self.producer = stack.enter_context(Producer(bootstrap_servers=broker.bootstrap_servers))

    def write(self, partition: int, count: int, key: bytes | None = None) -> None:
        for number in range(count):
            self.producer.send("orders", b"value %d" % number, key, partition=partition)
        self.producer.flush()

    def commit(self, **offsets: int) -> None:
        """Without members: ``commit(p0=5)``."""
        self.admin.alter_consumer_group_offsets(
            GROUP, {TopicPartition("orders", int(name[1:])): offset for name, offset in offsets.items()}
        )

    def consumer(self, name: str, **settings: Any) -> Consumer:
        made = self._stack.enter_context(
            Consumer(
                bootstrap_servers=self.broker.bootstrap_servers,
                group_id=GROUP,
                client_id=name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                **settings,
            )
        )
        made.subscribe(["orders"])
        return made

    def member(self, name: str, **settings: Any) -> Consumer:
        """One that has got partitions."""
        made = self.consumer(name, **settings)
        settle(made)
        return made

    def why(self, *options: str) -> Ran:
        return self._kadence("groups", "why", GROUP, "--for", "12", *options)

    def found(self) -> dict[str, Any]:
        """The worst reason."""
        ran = self.why()
        assert ran.status == command.FOUND, ran.err
        for row in ran.rows:
            for each in row["commands"]:
                make_parser().parse_args(shlex.split(each.partition(" | ")[0])[1:])
        return dict(ran.rows[0])


def settle(*members: Consumer) -> None:
    """Poll until all have partitions, and what they have stays."""

    def is_settled() -> bool:
        for each in members:
            each.poll(0.01)
        return all(each.assignment() for each in members)

    until(is_settled, what="the members have partitions", every=0)


def takes_all(member: Consumer) -> None:
    """Poll until it has all partitions."""

    def has_all() -> bool:
        member.poll(0.01)
        return len(member.assignment()) == 4

    until(has_all, what="it has all partitions", every=0)


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


@pytest.fixture
def broker(kadence_new_broker: Brokers) -> Broker:
    """A broker whose groups assign partitions at once."""
    return kadence_new_broker()


@pytest.fixture
def scene(kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    clock = FakeClock()
    broker.create_topic("orders", 4)
    with ExitStack() as stack:
        made = Scene(broker, kadence, stack)
        looks = iter(range(1, 10_000))
        began = clock.now_ms()

        def pause(seconds: float) -> None:
            clock.advance(round(seconds * 1000))
            # It goes on once a second, however often it is glanced at.
            if (clock.now_ms() - began) % 1000 == 0:
                made.act(next(looks))
            else:
                made.meanwhile()

        monkeypatch.setattr(command, "pause", pause)
        monkeypatch.setattr(command, "clock", clock)
        yield made


# ---------------------------------------------------------------- the situations


def test_nothing_is_seen(scene: Scene) -> None:
    """One look of 12 s does not say that nothing is wrong."""
    scene.write(0, 10)
    scene.commit(p0=10)
    ran = scene.why("--wide")
    assert ran.status == 0
    assert ran.out.splitlines() == [
        "report: nothing seen in 12s (Empty, 0 members, 1 partition, lag 0)",
        "   what happens once in some minutes, such as a rebalance loop, takes a longer look:",
        "   $ kadence groups why report --for 600",
    ]
    assert scene.why().out == ""


def test_1_a_slow_member(scene: Scene) -> None:
    fast, slow = scene.consumer("fast"), scene.consumer("slow")
    settle(fast, slow)
    for number in range(4):
        scene.write(number, 2_000)
    mine, theirs = sorted(slow.assignment()), sorted(fast.assignment())

    def act(look: int) -> None:
        fast.commit(dict.fromkeys(theirs, min(2_000, look * 500)))
        slow.commit(dict.fromkeys(mine, look * 5))

    slow.commit(dict.fromkeys(mine, 0))
    fast.commit(dict.fromkeys(theirs, 0))
    scene.act = act
    found = scene.found()
    assert (found["reason"], found["members"], found["harm"]) == ("slow-member", ["slow"], "slows")
    assert found["partitions"] == [spelled(each) for each in mine]
    assert found["details"]["share"] == 1
    assert found["details"]["consumed"] == pytest.approx(10)


@pytest.mark.parametrize("hangs", [False, True])
def test_2_a_hung_transaction(scene: Scene, hangs: bool) -> None:
    if hangs:
        leave_hanging(scene.broker)
    else:
        open_ = Producer(bootstrap_servers=scene.broker.bootstrap_servers, transactional_id="billing-1")
        open_.init_transactions()
        open_.begin_transaction()
        open_.send("orders", b"open", partition=0).result()
    scene.write(0, 9)
    scene.commit(p0=0)
    member = scene.member("reader", isolation_level="read_committed")
    found = scene.found()
    assert (found["reason"], found["partitions"], found["held"]) == ("open-transaction", ["orders:0"], 10)
    details = found["details"]
    assert (details["transactional_id"], details["start_offset"], details["hangs"]) == (
        None if hangs else "billing-1",
        0,
        hangs,
    )
    assert details["started"] is not None
    if hangs:
        assert found["commands"][1] == "kadence transactions abort orders:0 --start-offset 0"
    else:
        assert found["commands"] == [
            "kadence transactions describe billing-1",
            "kadence transactions fence billing-1",
        ]
    # The last of the commands mends it.
    assert scene._kadence(*found["commands"][-1].split()[1:]).status == 0
    until(lambda: len(member.poll(0.1)) > 0, what="the group reads on")
    if not hangs:
        open_.close(0)


def test_3_a_poison_record(scene: Scene) -> None:
    scene.write(0, 3)
    scene.write(0, 1, b"poison")
    scene.write(0, 5)
    member = scene.consumer("worker")
    settle(member)
    takes_all(member)
    for number in (1, 2, 3):
        scene.write(number, 100)
    member.commit({tp(0): 3, tp(1): 0, tp(2): 0, tp(3): 0})
    scene.act = lambda look: member.commit({tp(number): look * 4 for number in (1, 2, 3)})
    found = scene.found()
    assert (found["reason"], found["partitions"], found["members"]) == (
        "stuck-record",
        ["orders:0"],
        ["worker"],
    )
    assert found["details"] == {
        "offset": 3,
        "size": len(b"poison") + len(b"value 0"),
        "key": "poison",
        "timestamp": found["details"]["timestamp"],
    }
    assert found["commands"][0] == "kadence consume orders:0 --from 3 -n 1"
    shown = scene._kadence(*found["commands"][0].split()[1:])
    assert json.loads(shown.out)["key"] == "poison"
    page = scene.why("--wide").out
    assert "1. STOPS: orders:0 stands at offset 3" in page
    assert max(map(len, page.splitlines())) <= 80


def test_4_a_rebalance_loop(scene: Scene) -> None:
    steady = scene.member("steady")

    restarted: list[Consumer] = []

    def act(look: int) -> None:
        if look % 2:
            restarted.append(scene.consumer("flapping"))
            settle(steady, restarted[-1])
        else:
            restarted.pop().close()
            takes_all(steady)

    scene.act = act
    found = scene.found()
    assert (found["reason"], found["members"]) == ("rebalance-loop", ["flapping"])
    assert found["details"]["rebalances"] >= 6
    assert found["details"]["joined"]["flapping"] >= 5


def test_4_a_crash_loop_whatever_the_last_look_meets(scene: Scene) -> None:
    """A record kills each reader; a supervisor starts the next one."""
    scene.write(0, 400)
    scene.write(1, 5)
    scene.commit(p0=24, p1=5)
    alive: list[Consumer] = []

    def act(look: int) -> None:
        if look % 3 == 1:
            alive.append(scene.member("shipping"))
        elif alive and look % 3 == 0:
            alive.pop().close()

    scene.act = act
    for seconds in (12, 13, 14):
        ran = scene._kadence("groups", "why", GROUP, "--for", str(seconds))
        assert [(row["reason"], row["harm"]) for row in ran.rows[:2]] == [
            ("rebalance-loop", "stops"),
            ("far-behind", "stops"),
        ], ran.out
        loop, behind = ran.rows[:2]
        assert loop["members"] == ["shipping"]
        assert loop["details"]["looks_without_members"] >= 4
        assert (behind["partitions"], behind["held"]) == (["orders:0"], 376)
        assert behind["details"]["offset"] == 24
        assert behind["commands"] == ["kadence consume orders:0 --from 24 -n 1"]
        while alive:
            alive.pop().close()


def test_4_consumers_that_live_for_less_than_a_second(scene: Scene) -> None:
    """Each look meets the group without members, and still it is not one that nobody reads."""
    scene.write(0, 400)
    scene.write(1, 5)
    scene.commit(p0=24, p1=5)
    parts = iter(range(10_000))
    alive: list[Consumer] = []

    def meanwhile() -> None:
        if next(parts) % 4 == 1:
            alive.append(scene.member("shipping"))
        elif alive:
            alive.pop().close()

    scene.meanwhile = meanwhile
    rows = scene.why().rows
    assert [row["reason"] for row in rows] == ["rebalance-loop", "far-behind"]
    assert rows[0]["members"] == ["shipping"]
    assert rows[1]["commands"] == ["kadence consume orders:0 --from 24 -n 1"]


def test_one_rebalance_is_told(scene: Scene) -> None:
    steady = scene.member("steady")
    passing: list[Consumer] = []

    def act(look: int) -> None:
        if look == 5:
            passing.append(scene.consumer("mail-b"))
            settle(steady, passing[0])
        elif look == 8:
            passing[0].close()
            takes_all(steady)

    scene.act = act
    ran = scene.why()
    assert ran.status == 0
    (row,) = ran.rows
    assert (row["reason"], row["harm"], row["members"]) == ("rebalance", "passes", ["mail-b"])
    assert (row["details"]["joined"], row["details"]["left"]) == ({"mail-b": 1}, {"mail-b": 1})
    assert row["says"].endswith("in 12s: mail-b left and joined")
    assert row["evidence"][:2] == ["mail-b joined 7s ago", "mail-b left 4s ago"]
    assert row["commands"] == ["kadence groups why report --for 600"]


def test_several_groups_in_one_look_the_worst_first(scene: Scene) -> None:
    for partition, count in ((0, 10), (1, 5)):
        scene.write(partition, count)
    groups = {"orders-a": (1, 4), "orders-b": (0, 2), "orders-c": (1, 5)}
    for group, (partition, offset) in groups.items():
        scene.admin.alter_consumer_group_offsets(group, {tp(partition): offset})
    looks: list[int] = []
    scene.act = looks.append
    for words in (["orders*"], ["orders-a", "orders-c", "orders-b"]):
        looks.clear()
        ran = scene._kadence("groups", "why", *words)
        assert ran.status == command.FOUND
        assert [(row["group"], row["held"]) for row in ran.rows if row["reason"] == "no-members"] == [
            ("orders-b", 8),
            ("orders-a", 1),
        ]
        assert len(looks) == 12, "all of them are looked at together"
    page = scene._kadence("groups", "why", "orders*", "--for", "1", "--wide")
    heads = [line.split(":")[0] for line in page.out.splitlines() if line.startswith("orders-")]
    assert heads == ["orders-b", "orders-a", "orders-c"]
    assert "looking at 3 groups for 1 s" in page.err
    assert scene._kadence("groups", "why", "nothing*").status == 1
    assert "there is no group 'x'" in scene._kadence("groups", "why", "orders-a", "x").err


def test_5_a_wrong_login(kadence: Run, kadence_new_broker: Brokers) -> None:
    broker = kadence_new_broker(users={"alice": "secret"})
    login = (
        "-b",
        broker.bootstrap_servers,
        "-X",
        "security.protocol=SASL_PLAINTEXT",
        "-X",
        "sasl.mechanism=PLAIN",
    )
    who = ("-X", "sasl.username=alice", "-X", "sasl.password=wrong")
    ran = kadence("groups", "why", GROUP, "--for", "1", *login, *who)
    assert ran.status == command.FOUND
    assert ran.rows[0]["reason"] == "login-refused"
    page = kadence("groups", "why", GROUP, "--for", "1", "--wide", *login, *who).out
    assert page.startswith("report: 1 reason (it could not be looked at)")
    assert "wrong" not in page


def test_6_a_stuck_revocation(scene: Scene) -> None:
    busy = scene.consumer("busy", group_protocol="consumer")
    takes_all(busy)
    scene.write(0, 5)
    scene.consumer("waiting", group_protocol="consumer").poll(0.01)

    def wanted() -> bool:
        members = scene.admin.describe_consumer_groups([GROUP])[GROUP].members
        return len(members) == 2 and all(each.target_assignment for each in members)

    until(wanted, what="the other is to get partitions")
    found = scene.found()
    assert (found["reason"], found["members"], len(found["partitions"])) == ("stuck-revocation", ["busy"], 2)
    assert "waiting wait for that" in found["evidence"]


def test_6_a_classic_rebalance_that_does_not_end(scene: Scene) -> None:
    busy = scene.member("busy", group_protocol="classic", partition_assignment_strategy=["range"])
    scene.consumer("waiting", group_protocol="classic", partition_assignment_strategy=["range"]).poll(0.01)
    until(
        lambda: scene.admin.describe_consumer_groups([GROUP])[GROUP].state == "PreparingRebalance",
        what="a rebalance begins",
    )
    found = scene.found()
    assert (found["reason"], found["details"]) == ("stuck-rebalance", {"state": "PreparingRebalance"})
    busy.poll(0.01)


def test_7_an_empty_group_with_lag(scene: Scene) -> None:
    scene.write(0, 10)
    scene.write(1, 5)
    scene.commit(p0=4, p1=5)
    found = scene.found()
    assert (found["reason"], found["held"], found["partitions"]) == ("no-members", 6, ["orders:0"])
    assert found["details"] == {"state": "Empty"}


def test_8_offsets_out_of_range(scene: Scene) -> None:
    scene.write(0, 10)
    scene.commit(p0=2)
    scene.broker.delete_records("orders", 0, 7)
    assert scene.why().err == "", "a deleted offset is not looked up"
    found = scene.found()
    assert (found["reason"], found["harm"], found["details"]) == (
        "offsets-out-of-range",
        "loses",
        {"lost": 5},
    )
    scene.commit(p0=99)
    found = scene.found()
    assert (found["reason"], found["details"]) == ("offsets-out-of-range", {})
    reset = found["commands"][-1].removesuffix(" --dry-run").split()[1:]
    assert scene._kadence(*reset).status == 0
    assert scene.why().rows[0]["reason"] == "no-members"


def test_9_a_leader_is_missing(
    kadence: Run, kadence_new_broker: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = kadence_new_broker(nodes=2)
    clock = FakeClock()
    monkeypatch.setattr(command, "pause", lambda seconds: clock.advance(int(seconds * 1000)))
    monkeypatch.setattr(command, "clock", clock)
    broker.create_topic("orders", 4)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets(GROUP, {tp(number): 0 for number in range(4)})
    other = next(node for node in broker.node_ids if node != broker.coordinator_of(GROUP))
    broker.stop_node(other, elect=False)
    ran = kadence("groups", "why", GROUP, "--for", "1", "-b", broker.bootstrap_servers)
    assert ran.status == command.FOUND, ran.err
    assert ran.rows[0]["reason"] == "no-leader"
    assert len(ran.rows[0]["partitions"]) == 2
    assert ran.rows[0]["commands"][0] == f"kadence topics describe orders -b {broker.bootstrap_servers}"


def test_10_a_silent_member(scene: Scene) -> None:
    awake, silent = scene.consumer("awake"), scene.consumer("silent")
    settle(awake, silent)
    for number in range(4):
        scene.write(number, 50)
    mine, theirs = sorted(silent.assignment()), sorted(awake.assignment())
    silent.commit(dict.fromkeys(mine, 7))
    awake.commit(dict.fromkeys(theirs, 0))
    scene.act = lambda look: awake.commit(dict.fromkeys(theirs, min(50, look * 5)))
    found = scene.found()
    assert (found["reason"], found["members"], found["held"]) == ("silent-member", ["silent"], 86)
    assert "1 other member moves" in found["evidence"]


def test_11_a_group_slower_than_its_producers(scene: Scene) -> None:
    member = scene.consumer("only")
    takes_all(member)
    for number in range(4):
        scene.write(number, 200)
    member.commit({tp(number): 0 for number in range(4)})

    def act(look: int) -> None:
        for number in range(4):
            scene.write(number, 20)
        member.commit({tp(number): look * 10 for number in range(4)})

    scene.act = act
    found = scene.found()
    assert (found["reason"], found["details"]) == ("too-slow", {"produced": 80.0, "consumed": 40.0})
    assert "1 member for 4 partitions: up to 3 more can help" in found["evidence"]


def test_12_nobody_subscribes_any_more(scene: Scene) -> None:
    scene.write(0, 3)
    scene.commit(p0=0)
    scene.broker.create_topic("other", 1)
    member = scene.consumer("elsewhere")
    member.subscribe(["other"])
    settle(member)
    found = scene.found()
    assert (found["reason"], found["partitions"], found["held"]) == ("not-owned", ["orders:0"], 3)


def transaction(scene: Scene, name: str) -> Producer:
    """A transaction in partition 0 that has one record."""
    made = Producer(bootstrap_servers=scene.broker.bootstrap_servers, transactional_id=name)
    made.init_transactions()
    made.begin_transaction()
    made.send("orders", name.encode(), partition=0).result()
    return made


def test_13_markers_of_transactions_are_no_records(scene: Scene) -> None:
    """Who commits the offset behind each record never commits that behind a marker, or behind an aborted record."""
    with transaction(scene, "billing-1") as done:
        done.commit_transaction()
    with transaction(scene, "billing-2") as undone:
        undone.abort_transaction()
    scene.commit(p0=1)
    assert scene.why().rows == []
    scene.member("reader", isolation_level="read_committed")
    assert scene.why().rows == []
    with transaction(scene, "billing-3") as open_:
        found = scene.found()
        assert (found["reason"], found["partitions"]) == ("open-transaction", ["orders:0"])
        assert found["details"]["transactional_id"] == "billing-3"
        open_.abort_transaction()


def test_14_a_member_at_its_first_record(scene: Scene) -> None:
    scene.write(0, 3)
    member = scene.consumer("worker")
    takes_all(member)
    ran = scene.why()
    assert (ran.status, [(row["reason"], row["harm"]) for row in ran.rows]) == (
        0,
        [("never-committed", "passes")],
    )
    scene.act = lambda look: scene.write(0, 1)
    found = scene.found()
    assert (found["reason"], found["harm"], found["partitions"], found["members"], found["held"]) == (
        "never-committed",
        "stops",
        ["orders:0"],
        ["worker"],
        12,
    )


def test_lag_that_passes_is_no_reason_to_get_up(scene: Scene) -> None:
    scene.write(0, 2_000)
    member = scene.consumer("only")
    takes_all(member)
    member.commit({tp(0): 0})
    scene.act = lambda look: member.commit({tp(0): look * 100})
    ran = scene.why()
    assert ran.status == 0
    assert [(row["reason"], row["harm"]) for row in ran.rows] in ([("behind", "passes")], [])


def test_what_cannot_be_looked_at(scene: Scene) -> None:
    ran = scene.why()
    assert (ran.status, ran.out) == (1, "")
    assert "there is no group 'report'; `kadence groups list` shows all" in ran.err
    scene.commit(p0=0)
    assert "did you mean 'report'?" in scene._kadence("groups", "why", "reprot").err
    for wrong in ("0", "soon", "4000"):
        assert scene._kadence("groups", "why", GROUP, "--for", wrong).status == 2
