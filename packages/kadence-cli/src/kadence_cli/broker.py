"""``kadence broker``: the embedded broker as a program."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kadence.security.files import warn_if_open
from kadence_cli.common import (
    CommandError,
    UsageError,
    add_command,
    add_settings_option,
    print_json,
    read_settings,
    say,
)

if TYPE_CHECKING:
    from kadence_broker import TlsFiles
    from kadence_testing.schema_registry import SchemaRegistryServer

__all__ = ["add", "run"]

_DESCRIPTION = """\
Run a broker that speaks Kafka's protocol, for a laptop, tests or a first try.
When it is ready, it prints one JSON line with its address. By default only
this machine can reach it. If --host changes that, use TLS and users: otherwise
anyone who reaches the broker may do anything."""

_EXAMPLES = """\
  kadence broker
  kadence broker --topic flights:6 --topic orders:3
  kadence broker --port 0 --nodes 3            three brokers on free ports
  kadence broker --tls-certificate broker.pem --users users.txt
  kadence broker --fault 'any delay=50ms'      a slow broker
  kadence broker -X advertised.listeners=PLAINTEXT://localhost:19092"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence broker``."""
    parser = add_command(commands, "broker", summary, description=_DESCRIPTION, examples=_EXAMPLES)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        metavar="N",
        help="port of the first node; further nodes take the next ports. 0: any free ports (default: %(default)s)",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="number of nodes (default: %(default)s)",
    )
    parser.add_argument(
        "--topic",
        metavar="NAME[:N]",
        action="append",
        default=[],
        help="create a topic of N partitions (default: 1); repeatable",
    )
    parser.add_argument(
        "--fault",
        metavar="TEXT",
        action="append",
        default=[],
        help="inject a fault, e.g. 'fetch delay=200ms times=5'; repeatable (docs/testing.md)",
    )
    parser.add_argument(
        "--schema-registry",
        metavar="PORT",
        type=int,
        nargs="?",
        const=8081,
        help="also run a schema registry, in memory and on this machine only (default port: 8081; "
        "0: any free one)",
    )
    _add_security_options(parser)
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="keep records, topics and offsets in this directory (not on Windows; default: in memory only)",
    )
    parser.add_argument(
        "--fsync",
        choices=("flush", "interval", "never"),
        default="flush",
        help="with --data-dir, when records are synced to the disk. flush: before they are acknowledged; "
        "interval: about every second; never: when the system does it (default: %(default)s)",
    )
    add_settings_option(parser, "a broker setting by Kafka's name; repeatable")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence_broker import Broker

    topics = dict(_topic(text) for text in arguments.topic)
    config = read_settings(arguments.settings)
    # Shut down cleanly, so that the next start need not recover the logs.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        _registry(arguments.schema_registry) as registry,
        Broker(
            arguments.port,
            arguments.host,
            nodes=arguments.nodes,
            topics=topics,
            config=config,
            tls=_tls(arguments),
            users=_users(arguments.users),
            data_dir=arguments.data_dir,
            fsync=arguments.fsync,
        ) as broker,
    ):
        for fault in arguments.fault:
            broker.faults.parse(fault)
        ready = {"bootstrap_servers": broker.bootstrap_servers}
        if registry is not None:
            ready["schema_registry"] = registry.url
        print_json(ready)
        sys.stdout.flush()
        say(f"broker ready on {broker.bootstrap_servers}; Ctrl-C ends it")
        try:
            while True:
                # Not signal.pause(), which Windows lacks. A signal ends it at once, unless it comes between Python's
                # look for signals and the sleep itself.
                time.sleep(1)
        except KeyboardInterrupt:
            say("broker closed")
    return 0


def _registry(port: int | None) -> AbstractContextManager[SchemaRegistryServer | None]:
    if port is None:
        return nullcontext()
    from kadence_testing.schema_registry import SchemaRegistryServer

    return SchemaRegistryServer(port)


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    """The options for TLS and users."""
    parser.add_argument(
        "--tls-certificate", metavar="FILE", help="use TLS with the certificate and key in this PEM file"
    )
    parser.add_argument(
        "--tls-key", metavar="FILE", help="the certificate's private key, if it is in another file"
    )
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="require client certificates signed by these authorities (PEM)",
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        help="require a login (PLAIN or SCRAM); FILE has a line NAME:PASSWORD for each user",
    )


def _tls(arguments: argparse.Namespace) -> TlsFiles | None:
    from kadence_broker import TlsFiles

    if arguments.tls_certificate is None:
        if arguments.tls_key or arguments.tls_client_ca:
            raise UsageError("--tls-key and --tls-client-ca need --tls-certificate")
        return None
    return TlsFiles(arguments.tls_certificate, arguments.tls_key, client_ca=arguments.tls_client_ca)


def _users(path: str | None) -> dict[str, str] | None:
    if path is None:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        warn_if_open(path, "passwords")
    except OSError as error:
        raise CommandError(f"--users {path}: {error.strerror or error}") from None
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not name or not colon or not password:
            raise CommandError(f"--users {path}, line {number}: a line is NAME:PASSWORD")
        users[name] = password
    if not users:
        raise CommandError(f"--users {path}: it has no users; a line is NAME:PASSWORD")
    return users


def _topic(text: str) -> tuple[str, int]:
    name, _, count = text.partition(":")
    if not name or (count and not (count.isdigit() and int(count) > 0)):
        raise UsageError(f"--topic takes NAME or NAME:PARTITIONS, e.g. flights:6, not {text!r}")
    return name, int(count or 1)
