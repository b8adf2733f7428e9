"""One node of real Apache Kafka on a free loopback port, without docker: for tests, the demo and the bench.

    with Kafka() as kafka:
        Consumer(bootstrap_servers=kafka.bootstrap_servers, ...)

Maven resolves the broker's jars once, into a per-user cache (`kadence_testing.maven`). The node is a combined
broker and controller (KRaft). Its data is deleted at the end, so it is killed instead of being shut down. A guard
process holds a pipe from this process: when this process ends in any way, SIGKILL included, the pipe closes, and
the guard kills Kafka and removes its data.

POSIX only (sh, file locks).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kadence.errors import LocalError
from kadence.java import Java, find_java
from kadence_testing.maven import maven_jars

__all__ = ["KAFKA_VERSION", "NO_EXPIRY", "Kafka", "free_ports", "kafka_jars"]

KAFKA_VERSION: Final = os.environ.get("KADENCE_KAFKA_VERSION") or "4.4.0"
"""The release of Apache Kafka that `Kafka` runs: the environment variable ``KADENCE_KAFKA_VERSION``, or 4.4.0."""

_COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    # Kafka logs through slf4j and has no backend for it; without one a failed start would log no reason.
    "org.slf4j:slf4j-simple:1.7.36",
)

_NEVER_MS: Final = 86_400_000  # a day: longer than any run

NO_EXPIRY: Final[Mapping[str, int]] = {
    "log.retention.check.interval.ms": _NEVER_MS,
    "producer.id.expiration.check.interval.ms": _NEVER_MS,
    "offsets.retention.check.interval.ms": _NEVER_MS,
}
"""Broker settings for tests, which choose timestamps freely.

By default a broker deletes records whose timestamps are older than 7 days: it looks for them every 5 minutes. Every 10
minutes it forgets the producers that wrote them, and the expired committed offsets of groups without members.
"""

_SESSION: Final = "broker.session.timeout.ms"

_PROPERTIES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Short sessions for tests: a member may be found dead within half a second.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    # Expired transactions are looked for more often than every ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # On a busy machine the node itself is silent for seconds. A controller that considered it dead would
    # leave its partitions without a leader.
    _SESSION: "60000",
    # The log cleaner looks for work more often than every 15 seconds.
    "log.cleaner.backoff.ms": "100",
    **{name: str(value) for name, value in NO_EXPIRY.items()},
    # Leaders that a test has moved stay.
    "auto.leader.rebalance.enable": "false",
    # So do connections that a test does not use for a while.
    "connections.max.idle.ms": str(_NEVER_MS),
}

# A restarted controller considers the broker that died with it alive for this long, and refuses its new process.
_SESSION_AFTER_A_HALT_MS: Final = "3000"

# A broker for a few megabytes: a fast start is worth more than the second compiler.
_JVM_OPTIONS: Final = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_READY: Final = "Kafka Server started"

_PORT_TAKEN: Final = "Address already in use"

_PORT_ATTEMPTS: Final = 5
"""Starts with other ports: in the seconds between the choice of a port and Kafka's bind it may be taken."""

_CAUSE: Final = re.compile(r"(ERROR|FATAL) |^Caused by: |Exception: ")

_CONFIG: Final = "server.properties"

_PORTS: Final = range(20_000, 32_000)
"""Below the ephemeral ports of Linux (from 32768 on), and of macOS and Windows (from 49152 on)."""

# Waits for a line; anything but "done" (usually the end of the pipe) means that the owner is gone.
_GUARD: Final = 'read -r word; [ "$word" = done ] || { kill -9 "$1"; rm -rf "$2"; }'


class Kafka:
    """One node of Apache Kafka. Use it with ``with``, or call `start` and `stop`; `halt` is a crash.

    Args:
        properties: server properties, which are added to those for tests or replace them.
        listeners: the security protocol of each further listener, e.g. ``{"TLS": "SSL"}``. Each gets a free port;
            its key store and JAAS settings belong into ``properties``.
        scram_users: SCRAM users to create, in the form of Kafka's storage tool, e.g.
            ``SCRAM-SHA-256=[name=alice,password=secret]``.
        jvm_options: options of the broker's JVM; the default suits tests, not benchmarks.
        join: a running node, whose cluster this one joins as a further broker with the ``node.id`` in
            ``properties``. The node that was started first is the controller; stop it last. It considers a node dead
            after its ``broker.session.timeout.ms``, 60,000 here; lower it to see leaders move.
        startup_timeout: seconds until the node must be ready.
        parent: the folder in which it makes a folder for its configuration, its log and its data; by default that of
            temporary files. With a folder in memory (``/dev/shm``) the node does not wait for a disk.

    Attributes:
        bootstrap_servers: ``127.0.0.1:PORT`` of the plaintext listener; "" before `start`.
        addresses: ``127.0.0.1:PORT`` of each listener, by its name.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        scram_users: Sequence[str] = (),
        jvm_options: Sequence[str] = _JVM_OPTIONS,
        join: Kafka | None = None,
        startup_timeout: float = 180.0,
        parent: Path | None = None,
    ) -> None:
        self.bootstrap_servers = ""
        self.addresses: dict[str, str] = {}
        self._properties = dict(properties or {})
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._scram_users = tuple(scram_users)
        self._jvm_options = tuple(jvm_options)
        self._join = join
        self._controller = ""
        self._startup_timeout = startup_timeout
        self._parent = parent
        self._directory: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._running = ExitStack()
        self._cleanup = ExitStack()

    def start(self) -> Self:
        """Get the jars if necessary, format the storage, start the node, and return when it answers requests.

        After `halt()` the node starts with its data, on its ports; if that fails, the data stay. It takes three seconds
        longer, until its controller has forgotten the killed broker.

        Raises:
            MissingDependencyError: Java is missing, or Maven, which downloads the jars; it names the packages.
            LocalError: the node did not start; the message has the end of its log.
        """
        if self._server is not None:
            raise LocalError("this Kafka is already started")
        jars = kafka_jars()
        if self._directory is not None:
            self._launch_again(jars, self._directory)
            return self
        try:
            self._directory = self._prepare(jars)
            self._launch_on_free_ports(jars, self._directory)
        except BaseException:
            self.stop()
            raise
        return self

    def halt(self) -> None:
        """Kill the node, as a crash does. Its data and its ports stay for the next `start()`."""
        self._running.close()
        self._server = None

    def stop(self) -> None:
        """Kill the node and remove its data. It does nothing if the node is not running."""
        self.halt()
        self._cleanup.close()
        self._directory = None
        self.bootstrap_servers = ""
        self.addresses = {}

    def log(self) -> str:
        """The server's log since its last start; "" if it was never started, or is stopped."""
        return (self._directory / "server.log").read_text(errors="replace") if self._directory else ""

    @property
    def directory(self) -> Path | None:
        """The folder of its configuration, log and data; None if it was never started, or is stopped."""
        return self._directory

    @property
    def pid(self) -> int:
        """The process id of the server; 0 when it is not running."""
        return self._server.pid if self._server else 0

    def tool_command(self, main_class: str, *arguments: str, jvm_options: Sequence[str] = ()) -> list[str]:
        """The command line of one of Kafka's own tools, e.g. ``org.apache.kafka.tools.TopicCommand``."""
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [*_java_command(kafka_jars()), quiet, *jvm_options, main_class, *arguments]

    def run_tool(self, main_class: str, *arguments: str, timeout: float = 180.0, stdin: str = "") -> str:
        """Run one of Kafka's own tools, wait for its end and return its stdout.

        Raises:
            LocalError: the tool failed; the message has its output.
        """
        command = self.tool_command(main_class, *arguments)
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise LocalError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _prepare(self, jars: Path) -> Path:
        directory = Path(tempfile.mkdtemp(prefix="kadence-kafka-", dir=self._parent))
        self._cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        _run_format(jars, self._write_properties(directory), self._scram_users)
        return directory

    def _launch_on_free_ports(self, jars: Path, directory: Path) -> None:
        for left in reversed(range(_PORT_ATTEMPTS)):
            try:
                self._launch(jars, directory)
                break
            except LocalError:
                if not left or _PORT_TAKEN not in self.log():
                    raise
            self.halt()
            self._write_properties(directory)

    def _launch_again(self, jars: Path, directory: Path) -> None:
        if _SESSION not in self._properties:
            with (directory / _CONFIG).open("a") as config:
                config.write(f"{_SESSION}={_SESSION_AFTER_A_HALT_MS}\n")
        try:
            self._launch(jars, directory)
        except BaseException:
            self.halt()
            raise

    def _launch(self, jars: Path, directory: Path) -> None:
        config = directory / _CONFIG
        with (directory / "server.log").open("wb") as log:
            self._server = subprocess.Popen(
                [*_java_command(jars), *self._jvm_options, "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                # Ctrl-C in a terminal must reach only the test run, which then stops this node in its own order.
                start_new_session=True,
            )
        self._running.callback(_kill, self._server)
        self._running.enter_context(_guard(self._server.pid, directory))
        self._await_ready()

    def _write_properties(self, directory: Path) -> Path:
        names = [*self._listeners, *([] if self._join else ["CONTROLLER"])]
        ports = free_ports(len(names))
        for port in ports:
            # Another process has taken a port: choose others.
            with suppress(OSError):
                self._cleanup.enter_context(_reserved(port))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        protocols = {**self._listeners, "CONTROLLER": "PLAINTEXT"}
        properties = {
            **_PROPERTIES,
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "log.dirs": str(directory / "data"),
            **self._properties,
        }
        self._controller = self._join._controller if self._join else addresses["CONTROLLER"]
        properties.setdefault("controller.quorum.voters", f"1@{self._controller}")
        if self._join:
            properties["process.roles"] = "broker"
        config = directory / _CONFIG
        config.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in properties.items()))
        self.addresses = {name: addresses[name] for name in self._listeners}
        return config

    def _await_ready(self) -> None:
        assert self._server is not None
        deadline = time.monotonic() + self._startup_timeout
        # The log says that the broker is past its own start, the connection that the port is reachable.
        while _READY not in self.log() or not _accepts(self.addresses["PLAINTEXT"]):
            if self._server.poll() is not None:
                raise LocalError(
                    f"Kafka ended with {self._server.returncode} while starting:\n{self._tail()}"
                )
            if time.monotonic() > deadline:
                raise LocalError(f"Kafka was not ready after {self._startup_timeout:g} s:\n{self._tail()}")
            time.sleep(0.05)
        self.bootstrap_servers = self.addresses["PLAINTEXT"]

    def _tail(self) -> str:
        lines = self.log().splitlines()
        # A failing node logs its shutdown after the cause, so the cause is far before the end.
        causes = dict.fromkeys(line for line in lines[:-20] if _CAUSE.search(line))
        return "\n".join([*list(causes)[:20], *lines[-20:]])

    def __repr__(self) -> str:
        if self._server is not None:
            return f"<Kafka {KAFKA_VERSION} at {self.bootstrap_servers}, pid {self.pid}>"
        return f"<Kafka {KAFKA_VERSION} {'halted' if self.bootstrap_servers else 'not running'}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def kafka_jars() -> Path:
    """The directory with the jars of Kafka's broker and tools. The first call gets them with Maven.

    Raises:
        MissingDependencyError: they are not cached and Maven is missing or could not get them.
    """
    return maven_jars(f"kafka-{KAFKA_VERSION}", _COORDINATES)


@cache
def _java() -> Java:
    return find_java()  # starts a JVM to ask its version: once per process is enough


def _java_command(jars: Path) -> list[str]:
    # Such as the archive of Java's classes that the project's own tests use.
    options = os.environ.get("KADENCE_KAFKA_JAVA_OPTIONS", "").split()
    return [str(_java().executable), *options, "-cp", f"{jars}/*"]


def _run_format(jars: Path, config: Path, scram_users: Sequence[str]) -> None:
    cluster_id = "a2FkZW5jZS10ZXN0cy0wMQ"  # any 16 bytes in base64: the data lives as long as the node
    command = [*_java_command(jars), "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"]
    arguments = ["-t", cluster_id, "-c", str(config)]
    for user in scram_users:
        arguments += ["--add-scram", user]
    # Java reads arguments in the locale's encoding, and names of users may be anything.
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise LocalError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback interface, for servers that will be started.

    Ports of a `Kafka` are skipped, also while it is halted. The ports are not in the system's ephemeral range, from
    which other programs may get many until a JVM listens. They are chosen by the system's random source: tests seed
    Python's, and several processes would choose the same ports.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = secrets.choice(_PORTS)
            probe = stack.enter_context(socket.socket())
            with suppress(OSError), _reserved(port):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found


@contextmanager
def _reserved(port: int) -> Iterator[None]:
    """Reserve a port among callers of `free_ports`, also while no process listens on it.

    A bound datagram socket is the mark: its ports are separate from those of streams, and the system always frees it.
    """
    with socket.socket(type=socket.SOCK_DGRAM) as mark:
        mark.bind(("127.0.0.1", port))
        yield


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _escaped(value: str) -> str:
    # Java's properties format: a backslash escapes, a line ends a value (PEM keys have many).
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _kill(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


@contextmanager
def _guard(pid: int, directory: Path) -> Iterator[None]:
    with subprocess.Popen(
        ["sh", "-c", _GUARD, "kafka-guard", str(pid), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as guard:
        yield
        guard.communicate(b"done\n")
