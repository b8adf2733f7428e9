"""``kadence broker``: the embedded broker as a program."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Any

from kadence.cli.common import CommandError, add_command, add_settings_option, print_json, read_settings, say

__all__ = ["add", "run"]

_DESCRIPTION = """\
Serve Kafka's protocol from memory, for a laptop, a test or a quick start. Any Kafka client can use it.
Prints one JSON line with its address when it is ready, and runs until Ctrl-C. Everything is gone afterwards.
Nothing is protected: it listens on loopback unless told otherwise."""

_EXAMPLES = """\
  kadence broker                                       on localhost:9092
  kadence broker --topic flights:6 --topic orders:3    with topics to begin with
  kadence broker --port 0 --nodes 3                    three brokers on free ports; see the printed line
  kadence broker -X auto.create.topics.enable=false    Kafka's broker settings, as far as they are known here"""


def add(commands: Any) -> None:
    """The command line of ``kadence broker``."""
    parser = add_command(
        commands, "broker", "run a broker in memory", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=9092, help="port of the first node; 0 = any (default: %(default)s)"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, help="logical brokers, a port each (default: %(default)s)"
    )
    parser.add_argument(
        "--topic", metavar="NAME[:PARTITIONS]", action="append", default=[], help="create a topic; repeatable"
    )
    add_settings_option(parser, "a broker setting by Kafka's name; repeatable")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence.broker import Broker

    topics = dict(_topic(text) for text in arguments.topic)
    config = read_settings(arguments.settings)
    with Broker(
        arguments.port, arguments.host, nodes=arguments.nodes, topics=topics, config=config
    ) as broker:
        print_json({"bootstrap_servers": broker.bootstrap_servers})
        sys.stdout.flush()
        say(f"broker ready on {broker.bootstrap_servers}; Ctrl-C ends it")
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            say("broker closed")
    return 0


def _topic(text: str) -> tuple[str, int]:
    name, _, count = text.partition(":")
    if not name or (count and not (count.isdigit() and int(count) > 0)):
        raise CommandError(f"--topic takes NAME or NAME:PARTITIONS, e.g. flights:6, not {text!r}")
    return name, int(count or 1)
