"""Reads the command line, runs one command, and turns whatever ends it into a status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from types import FrameType

from kadence import records
from kadence.cli import broker, consume, groups, pipeline, produce, topics
from kadence.cli.common import CommandError, say
from kadence.cli.demo import command as demo
from kadence.errors import ConfigError, KafkaError

__all__ = ["main"]

_EPILOG = """\
a first session, with nothing but this program:
  kadence broker --port 9092 &                         a broker in memory, on loopback
  seq 5 | kadence produce numbers --format lines       five records
  kadence consume numbers --exit-at-end                five JSON lines
  kadence topics list; kadence groups list             what there is now

commands read and write JSON lines, so they make pipes:
  kadence consume flights -e | jq -r .key | sort | uniq -c
  kadence consume flights -e | kadence produce copy

the broker is -b HOST:PORT, else $KADENCE_BOOTSTRAP_SERVERS, else localhost:9092
"""

_COMMANDS = (broker, produce, consume, topics, groups, pipeline, demo)


class _Terminated(BaseException):
    """SIGTERM came: end as after Ctrl-C, with what must be closed closed."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kadence",
        description="A Kafka consumer whose heartbeat never misses; here as a program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"kadence {metadata.version('kadence')} "
        f"({records.IMPLEMENTATION} decoder, checksum: {records.KERNEL}, Python {sys.version.split()[0]})",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise _Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    arguments = _parser().parse_args(argv)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        status: int = arguments.run(arguments)
        # Flush here: the write may fail, since whoever read our output may have gone.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except _Terminated:
        return 143
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except ConfigError as error:
        say(f"kadence {arguments.command}: {error}")
        return 2
    except (KafkaError, CommandError, OSError) as error:
        say(f"kadence {arguments.command}: {error}")
        for note in getattr(error, "__notes__", ()):
            say(f"  {note}")
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return status
