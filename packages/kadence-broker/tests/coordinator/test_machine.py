"""A group of imperfect clients under virtual time, driven by Hypothesis.

Clients join, sync, heartbeat, leave, crash, restart and lose answers, in any order and with any pauses.
After every step the group must be consistent; at the end, with the clients behaving, it must come to rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests.luck import examples
from tests.worlds.coordinator import Sent, World

from kadence.clock import FOREVER
from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupResponse
from kadence_broker.coordinator import ClassicGroup, GroupCoordinator, GroupState
from kadence_broker.coordinator.classic.group import NEXT
from kadence_broker.coordinator.classic.parking import session_key

PARTITIONS = 6
SESSION = 10_000
LONGEST_REBALANCE = 30_000
KINDS = st.tuples(
    st.sampled_from([3, 5, 9]),
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from([5_000, LONGEST_REBALANCE]),
)
"""Version of JoinGroup, instance id, rebalance timeout."""


@dataclass(eq=False)
class Client:
    """A classic consumer's side of the protocol, without a mind of its own: rules push it one step."""

    world: World
    version: int
    instance: str | None
    rebalance: int
    member_id: str = ""
    generation: int = -1
    owned: set[int] = field(default_factory=set)
    joining: Sent | None = None
    joined: JoinGroupResponse | None = None
    syncing: Sent | None = None
    plans: dict[int, set[str]] = field(default_factory=dict)
    plan: set[str] = field(default_factory=set)
    """Whom it gave something to, as a leader, in the sync that is under way."""
    metadata: bytes = b"m"
    is_alive: bool = True
    is_busy: bool = False

    def step(self) -> None:
        """Do the next thing a well-behaved client would do."""
        if self.joining is not None:
            self._take_join()
        elif self.joined is not None:
            self._sync(self.joined)
        elif self.syncing is not None:
            self._take_sync()
        elif self.generation < 0:
            self._join()
        else:
            self._heartbeat()

    def _join(self) -> None:
        self.owned = set()
        self.joining = self.world.join(
            self.member_id,
            version=self.version,
            session=SESSION,
            rebalance=self.rebalance,
            instance=self.instance,
            protocols={"range": self.metadata},
        )

    def _take_join(self) -> None:
        assert self.joining is not None
        if self.joining.is_parked:
            return
        response, self.joining = self.joining.response, None
        if response.error_code == codes.NONE:
            self.member_id = response.member_id
            self.generation = response.generation_id
            self.joined = response
        elif response.error_code == codes.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        else:
            self._lose(response.error_code)

    def _sync(self, joined: JoinGroupResponse) -> None:
        plan: dict[str, bytes] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            ids = [each.member_id for each in joined.members]
            assert self.member_id in ids
            plan = {each: bytes(range(ids.index(each), PARTITIONS, len(ids))) for each in ids}
        self.joined = None
        self.plan = set(plan)
        self.syncing = self.world.sync(joined, plan, group_instance_id=self.instance)

    def _take_sync(self) -> None:
        assert self.syncing is not None
        if self.syncing.is_parked:
            return
        response, self.syncing = self.syncing.response, None
        if response.error_code == codes.NONE:
            self.owned = set(response.assignment)
            if self.plan:
                known = self.plans.setdefault(self.generation, self.plan)
                assert known == self.plan, "a generation is used twice"
        else:
            self._lose(response.error_code)

    def _heartbeat(self) -> None:
        code = self.world.heartbeat(self.member_id, self.generation, instance=self.instance)
        if code != codes.NONE:
            self._lose(code)

    def heartbeat_only(self) -> None:
        """Show life, and do nothing about what the answer says: a client whose application is busy."""
        if self.generation >= 0:
            self.world.heartbeat(self.member_id, self.generation, instance=self.instance)

    def forget(self) -> None:
        """Whatever is under way is lost."""
        self.joining = self.joined = self.syncing = None
        self.generation = -1
        self.owned = set()

    def _lose(self, code: int) -> None:
        self.generation = -1
        self.owned = set()
        if code in (codes.UNKNOWN_MEMBER_ID, codes.FENCED_INSTANCE_ID):
            self.member_id = ""
        else:
            known = (codes.REBALANCE_IN_PROGRESS, codes.ILLEGAL_GENERATION, codes.NOT_COORDINATOR)
            assert code in known, codes.name(code)


class GroupMachine(RuleBasedStateMachine):
    """See the module's text."""

    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.everyone: list[Client] = []
        self.generation = 0
        self.plans: dict[int, set[str]] = {}
        self.world = World()
        self.shadow = GroupCoordinator()
        self.replayed = 0

    def group(self) -> ClassicGroup | None:
        return self.world.group if "g" in self.world.coordinator.groups else None

    @initialize(
        target=clients, delay=st.sampled_from([0, 3_000]), kinds=st.lists(KINDS, min_size=1, max_size=3)
    )
    def begin(self, delay: int, kinds: list[tuple[int, str | None, int]]) -> Any:
        """Most troubles need a group that is there: it begins with one."""
        self.world = World(initial_rebalance_delay_ms=delay)
        started = [self._start(*kind) for kind in kinds]
        self.live(30)
        return multiple(*[each for each in started if each is not None])

    @rule(target=clients, kind=KINDS)
    def start(self, kind: tuple[int, str | None, int]) -> Any:
        client = self._start(*kind) if len(self.everyone) < 5 else None
        return multiple() if client is None else client

    def _start(self, version: int, instance: str | None, rebalance: int) -> Client | None:
        if instance is not None:
            # Two live processes with one instance id fence each other for ever; that is a user's mistake.
            version = max(version, 5)
            if any(other.instance == instance for other in self.everyone):
                return None
        client = Client(self.world, version, instance, rebalance, plans=self.plans)
        self.everyone.append(client)
        return client

    @rule(client=clients)
    def step(self, client: Client) -> None:
        if client.is_alive:
            client.step()

    @rule(ms=st.sampled_from([1, 100, 3_000, 9_999, 10_000, 30_000]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(seconds=st.sampled_from([3, 15, 60]))
    def live(self, seconds: int) -> None:
        """Time passes in which everyone does what is due; busy clients only show that they live."""
        for _ in range(seconds // 3):
            for client in list(self.everyone):
                if client.is_busy:
                    client.heartbeat_only()
                else:
                    client.step()
                    client.step()
            self.world.advance(3_000)
            self.every_parked_request_ends()

    @rule(client=clients)
    def change_pace(self, client: Client) -> None:
        client.is_busy = not client.is_busy

    @rule(client=clients, metadata=st.binary(max_size=2))
    def subscribe_anew(self, client: Client, metadata: bytes) -> None:
        if client.is_alive and client.joining is None and client.syncing is None:
            client.metadata = metadata
            client.forget()

    @rule(client=clients, kind=st.sampled_from(["lose", "restart", "crash", "leave"]))
    def trouble(self, client: Client, kind: str) -> None:
        """An answer is lost; a new process takes over (a static one its place); the end, announced or not."""
        if not client.is_alive:
            return
        if kind == "leave" and client.member_id and client.instance is None:
            self.world.leave(client.member_id)
        client.forget()
        if kind == "restart":
            client.member_id = ""
        if kind in ("crash", "leave"):
            client.is_alive = False
            self.everyone.remove(client)

    @rule(rewritten=st.booleans())
    def move(self, rewritten: bool) -> None:
        """Another node takes over, with what was stored."""
        self.world.move(rewritten=rewritten)
        if rewritten:
            self.shadow, self.replayed = GroupCoordinator(), 0

    @invariant()
    def what_is_stored_is_what_is_known(self) -> None:
        for record in self.world.log[self.replayed :]:
            self.shadow.replay(record)
        self.replayed = len(self.world.log)
        assert list(self.shadow.snapshot(lambda _: True)) == self.world.snapshot()
        group = self.group()
        if group is not None and group.state in (GroupState.EMPTY, GroupState.STABLE):
            loaded = self.shadow.groups["g"]
            assert isinstance(loaded, ClassicGroup)
            assert at_rest(loaded) == at_rest(group)

    @invariant()
    def every_parked_request_ends(self) -> None:
        longest = LONGEST_REBALANCE + 3_000
        for sent in self.world.all_sent():
            if sent.is_parked:
                assert self.world.now - sent.sent_at <= longest, sent.request
                assert self.world.coordinator.next_deadline() < FOREVER

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group()
        if group is None:
            return
        if group.state is GroupState.STABLE:
            # A generation that nobody was assigned in is forgotten when the coordinator moves.
            assert group.generation_id >= self.generation, "a generation never falls"
            self.generation = group.generation_id
        if group.state is GroupState.EMPTY:
            assert not group.members
            assert group.leader_id is None
        if group.members:
            assert group.leader_id in group.members
        assert group.pending_joins.isdisjoint(group.members)
        assert group.pending_syncs <= group.members.keys()
        assert set(group.static_members.values()) <= group.members.keys()
        assert all(member_id == member.member_id for member_id, member in group.members.items())
        timers = self.world.coordinator._shard.timers
        for member in group.members.values():
            is_timed = session_key(group, member.member_id) in timers
            assert is_timed or member.is_parked, "a member that nobody watches"
            if member.joining is not None:
                assert group.state is GroupState.PREPARING_REBALANCE
            if member.syncing is not None:
                assert group.state is GroupState.COMPLETING_REBALANCE
        for member_id in group.pending_joins:
            assert session_key(group, member_id) in timers

    @invariant()
    def no_partition_has_two_owners_in_one_generation(self) -> None:
        group = self.group()
        if group is None:
            return
        owners: dict[int, Client] = {}
        for client in self.everyone:
            if client.generation == group.generation_id and client.member_id in group.members:
                for partition in client.owned:
                    assert owners.setdefault(partition, client) is client

    def teardown(self) -> None:
        """Left in peace, the group settles on those who live, and everything is shared among them."""
        for _ in range(400):
            for client in self.everyone:
                client.step()
            self.world.advance(1_000)
        group = self.group()
        if not self.everyone:
            assert group is None or group.state is GroupState.EMPTY
            return
        assert group is not None
        assert group.state is GroupState.STABLE, group
        assert set(group.members) == {each.member_id for each in self.everyone}
        assert sorted(p for each in self.everyone for p in each.owned) == list(range(PARTITIONS))


def at_rest(group: ClassicGroup) -> Any:
    """All that counts of a group that is not rebalancing."""
    members = [
        (
            each.member_id,
            each.group_instance_id,
            each.session_timeout_ms,
            each.rebalance_timeout_ms,
            each.metadata(group.protocol_name or ""),
            each.assignment,
        )
        for each in group.members.values()
    ]
    return (
        (group.state, group.generation_id, group.protocol_type, group.protocol_name, group.leader_id),
        (group.empty_since, group.static_members, members),
    )


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = examples(40, stateful_step_count=30)


def test_the_table_of_states_is_closed_and_dead_is_the_end() -> None:
    assert set(NEXT) == set(GroupState)
    assert all(
        GroupState.DEAD in following for state, following in NEXT.items() if state is not GroupState.DEAD
    )
    assert NEXT[GroupState.DEAD] == frozenset()
