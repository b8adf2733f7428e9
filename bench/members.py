"""Many members: what they cost the embedded broker, and how long a group takes to come together, beside Apache Kafka.

    python bench/members.py [--members 10000] [--groups 1000] [--seconds 15] [--sizes 10,100,1000] [--rounds 3]

Part one holds live members in groups of our broker, a socket each, heartbeats every 3 s, and prints how long after
sending a heartbeat was answered, and what the broker's process took. Part two lets N members join one group, and
measures until all have been told the same generation, or epoch, with a share for everybody; our broker and Kafka take
turns, both with ``group.initial.rebalance.delay.ms=0``, the same heartbeats and the same assignment interval.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from broker import Client
from harness.crowd import Crowd, Group, Member
from harness.members import ClassicMember, ConsumerMember
from kadence.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.registry import decode_response

HEARTBEATS_S = 3.0
JOIN_HEARTBEATS_S = 0.5
STARTING_GROUPS = 20
PATIENCE_S = 120
PROTOCOLS: Final = ("classic", "consumer")
NUMBERS = count()


class Server(NamedTuple):
    """A running broker."""

    name: str
    address: str
    pid: int

    def cpu(self) -> float:
        """Seconds of processor time so far, of all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MiB in memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise SystemExit("the broker is gone")


def settings_of(heartbeats: float) -> dict[str, str]:
    """What both brokers are told."""
    interval = str(round(heartbeats * 1000))
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": interval,
        "group.consumer.heartbeat.interval.ms": interval,
        "group.consumer.assignment.interval.ms": "1000",
    }


@contextmanager
def ours(settings: Mapping[str, str]) -> Iterator[Server]:
    """``kadence broker`` in a process of its own."""
    command = [sys.executable, "-m", "kadence", "broker", "--port", "0"]
    for key, value in settings.items():
        command += ["-X", f"{key}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["bootstrap_servers"]
            yield Server("kadence", address, process.pid)
        finally:
            process.terminate()


@contextmanager
def kafkas(settings: Mapping[str, str]) -> Iterator[Server]:
    """Apache Kafka, as it runs in earnest: with both compilers."""
    from kadence_testing.kafka import Kafka

    with Kafka(settings, jvm_options=("-Xms1g", "-Xmx1g")) as kafka:
        yield Server("kafka", kafka.bootstrap_servers, kafka.pid)


def create_topic(server: Server, partitions: int) -> str:
    """A topic for groups of so many members."""
    name = f"for-{partitions}"
    client = Client(server.address)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    code = decode_response(CreateTopicsRequest, 5, client.call(request, 5))[1].topics[0].error_code
    # Asking for a coordinator is what makes Kafka create its topic of offsets.
    client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    client.close()
    if code:
        raise SystemExit(f"{server.name} did not create {name}: error {code}")
    return name


def enlist(crowd: Crowd, protocol: str, size: int, topic: str) -> Group:
    """A group and its members, connected and not yet joining."""
    group = Group(f"g{next(NUMBERS)}", size)
    for _ in range(size):
        if protocol == "classic":
            ClassicMember(crowd, group)
        else:
            ConsumerMember(crowd, group, topic)
    return group


def start(crowd: Crowd, groups: Sequence[Group]) -> None:
    """Let all join, a few groups at a time."""
    members: dict[Group, list[Member]] = {group: [] for group in groups}
    for member in crowd.members:
        members[member.group].append(member)
    for begin in range(0, len(groups), STARTING_GROUPS):
        some = groups[begin : begin + STARTING_GROUPS]
        for group in some:
            for member in members[group]:
                member.start()
        # Members of the new protocol need an assignment interval; that of a group goes on beside the next ones'.
        crowd.run(lambda some=some: all(group.is_stable for group in some), 0.3)  # type: ignore[misc]
    if not crowd.run(lambda: all(group.is_stable for group in groups), PATIENCE_S):
        raise SystemExit(f"not all groups are stable after {PATIENCE_S} s; {dict(crowd.unexpected)}")


def percentiles(seconds: Sequence[float]) -> str:
    """In milliseconds."""
    ordered = sorted(seconds)
    p50, p99 = (ordered[round((len(ordered) - 1) * part)] * 1000 for part in (0.5, 0.99))
    return f"p50 {p50:7.2f}  p99 {p99:7.2f}  max {ordered[-1] * 1000:7.2f} ms"


def hold(protocol: str, members: int, groups: int, seconds: float) -> None:
    """Part one: print how late heartbeats are, and what the broker takes."""
    size = max(members // groups, 1)
    with ours(settings_of(HEARTBEATS_S)) as server:
        topic = create_topic(server, size)
        empty = server.memory()
        crowd = Crowd(server.address, HEARTBEATS_S)
        everybody = [enlist(crowd, protocol, size, topic) for _ in range(groups)]
        began = time.perf_counter()
        start(crowd, everybody)
        joined = time.perf_counter() - began
        crowd.run(lambda: False, HEARTBEATS_S)
        crowd.answered_after.clear()
        crowd.sent_late.clear()
        crowd.unexpected.clear()
        began, cpu, own = time.perf_counter(), server.cpu(), time.process_time()
        crowd.run(lambda: False, seconds)
        took = time.perf_counter() - began
        busy, driver = (server.cpu() - cpu) / took * 100, (time.process_time() - own) / took * 100
        print(f"{protocol}: {size * groups:,} members in {groups:,} groups, all stable after {joined:.1f} s")
        print(
            f"  heartbeats   {len(crowd.answered_after) / took:8,.0f} /s, errors: {dict(crowd.unexpected) or 'none'}"
        )
        print(f"  answered     {percentiles(crowd.answered_after)} after sending")
        print(f"  sent         {percentiles(crowd.sent_late)} after they were due (this driver's share)")
        print(
            f"  the broker   {busy:5.0f} % of a core, {server.memory():.0f} MiB, {empty:.0f} without members"
        )
        print(f"  this driver  {driver:5.0f} % of a core")
        for member in crowd.members:
            member.sock.close()


def join(server: Server, protocol: str, size: int, topic: str) -> tuple[float, float]:
    """Part two, once: seconds until the group is stable, and the broker's processor time in ms for each member."""
    crowd = Crowd(server.address, JOIN_HEARTBEATS_S)
    group = enlist(crowd, protocol, size, topic)
    crowd.members[-1].knock()
    time.sleep(0.2)
    cpu, began = server.cpu(), time.perf_counter()
    for member in crowd.members:
        member.start()
    if not crowd.run(lambda: group.is_stable, PATIENCE_S):
        raise SystemExit(f"{server.name}: no stable group of {size}; {dict(crowd.unexpected)}")
    took, cpu = time.perf_counter() - began, server.cpu() - cpu
    crowd.close()
    return took, cpu * 1000 / size


def compare(sizes: Sequence[int], rounds: int) -> None:
    """Part two: print medians side by side, and the ratio of the best times, which other programs disturb least."""
    settings = settings_of(JOIN_HEARTBEATS_S)
    with ours(settings) as mine, kafkas(settings) as theirs:
        servers = (mine, theirs)
        topics = {(server, size): create_topic(server, size) for server in servers for size in sizes}
        for server in servers:
            for protocol in PROTOCOLS:
                for size in sizes:
                    join(server, protocol, size, topics[server, size])
        print("N joins to a stable group: seconds, and the broker's processor time in ms for each member")
        for protocol in PROTOCOLS:
            for size in sizes:
                results: dict[Server, list[tuple[float, float]]] = {mine: [], theirs: []}
                for _ in range(rounds):
                    for server in servers:
                        results[server].append(join(server, protocol, size, topics[server, size]))
                (our_time, our_cpu), (their_time, their_cpu) = (
                    map(statistics.median, zip(*results[server], strict=True)) for server in servers
                )
                our_best, their_best = (min(results[server])[0] for server in servers)
                print(
                    f"  {protocol:8} {size:5}   kadence {our_time:6.3f} s {our_cpu:6.2f} ms"
                    f"   kafka {their_time:6.3f} s {their_cpu:6.2f} ms"
                    f"   ratio of times {our_time / their_time:5.2f}, of the best {our_best / their_best:5.2f}",
                    flush=True,
                )


def allow_sockets(wanted: int) -> None:
    """Raise the limit of open files as far as it goes; the broker inherits it.

    Raises:
        SystemExit: that is not far enough.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(
            f"{wanted:,} open files are needed, and the hard limit is {hard:,}: use fewer --members"
        )
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> None:
    """Both parts, or what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10_000, help="members held; 0 leaves that part out")
    parser.add_argument("--groups", type=int, default=1_000, help="groups that they are in")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long they are watched")
    parser.add_argument("--sizes", default="10,100,1000", help="groups that join; empty leaves that part out")
    parser.add_argument("--rounds", type=int, default=3, help="joins of each size, whose median is printed")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",") if size]
    allow_sockets(max([arguments.members, *sizes]) + 200)
    if arguments.members:
        for protocol in PROTOCOLS:
            hold(protocol, arguments.members, arguments.groups, arguments.seconds)
    if sizes:
        compare(sizes, arguments.rounds)


if __name__ == "__main__":
    main()
