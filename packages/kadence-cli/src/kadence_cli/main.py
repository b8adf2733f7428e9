"""Parses the command line, runs one command, and turns its end into an exit status."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, Final

from kadence.errors import (
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    SchemaRegistryError,
    TransportError,
)
from kadence.parts import missing
from kadence.version import VERSION
from kadence_cli.common import CommandError, Parser, UsageError, add_cluster_option, say, settings_files
from kadence_cli.reach import said_of_cluster
from kadence_cli.where import times_joined

__all__ = ["main", "make_parser"]

_FIRST = """\
kadence: Kafka from the command line. To try it with nothing else installed:

  kadence broker &                                  a broker, in memory
  seq 5 | kadence produce numbers --format lines    five records
  kadence consume numbers --exit-at-end             five JSON lines
  kadence topics list                               all topics

With a cluster of yours, name a broker once:

  export KADENCE_BOOTSTRAP_SERVERS=broker1:9092
  kadence topics list
  kadence groups lag 'orders*'

`kadence --help` lists all commands, `kadence COMMAND --help` shows examples.
"""

_EPILOG = """\
a first session:
  kadence broker &                                  a broker, in memory
  seq 5 | kadence produce numbers --format lines    five records
  kadence consume numbers --exit-at-end             five JSON lines
  kadence topics list; kadence groups list          all topics and groups

commands read and write JSON lines, so they work in pipes:
  kadence consume flights -e | jq -r .key | sort | uniq -c
  kadence consume flights -e | kadence produce copy

the broker is -b HOST:PORT, else that of -c or --config, else
$KADENCE_BOOTSTRAP_SERVERS, else localhost:9092. Named clusters are in
~/.config/kadence/config.toml, or in the file that $KADENCE_CONFIG names:
  [clusters.prod]
  bootstrap.servers = "broker1:9093"
  security.protocol = "SASL_SSL"
  sasl.mechanism = "SCRAM-SHA-512"
  sasl.username = "me"
  sasl.password = "${PROD_PASSWORD}"
  kadence -c prod groups list               default: $KADENCE_CLUSTER
  kadence --config client.properties topics list    a file of Kafka's own tools
Other users of this machine may see a secret after -X in the list of processes,
but not in the environment, nor in files that only you can read.

Status: 0 success, 1 failure of the whole or of a part, 2 a wrong command line,
setting or pipeline file, 3 a harmful reason (`groups why`), 130 Ctrl-C, 141
the reader of the output has closed it, 143 SIGTERM. After Ctrl-C or SIGTERM
`broker` and `top --serve` end with 0.
"""

_COMMANDS: Final = {
    "broker": ("broker", "run a broker in this process"),
    "produce": ("produce", "write records from stdin"),
    "consume": ("consume", "print records"),
    "topics": ("topics", "list, create, change and delete topics"),
    "groups": ("groups", "consumer groups, their lag, their offsets"),
    "transactions": ("transactions", "list, find and end transactions"),
    "dead-letters": ("dead_letters", "list, show, replay and delete dead letters"),
    "top": ("top.command", "watch groups, members and lag live"),
    "cluster": ("cluster", "show the brokers of a cluster"),
    "pipeline": ("pipeline", "write topics to tables with Spark"),
    "checkpoint": ("checkpoint", "look at a Spark checkpoint"),
    "doctor": ("doctor", "check this installation and the brokers"),
    "completion": ("completion", "let a shell complete commands"),
}
"""The commands with their modules and what they are for, in the order of the help."""


class _Terminated(BaseException):
    """On SIGTERM: end as after Ctrl-C, so that clients are closed."""


class _Version(argparse.Action):
    """Shows the versions. What they are of is loaded for this alone."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        from kadence.records import KERNEL

        print(f"kadence {VERSION} (checksum: {KERNEL}, Python {sys.version.split()[0]})")
        parser.exit()


def make_parser(words: Collection[str] = _COMMANDS) -> Parser:
    """The command line.

    Args:
        words: those that are given. Of other commands there are only the names: each would load modules of its own.
    """
    parser = Parser(
        prog="kadence",
        description="Kafka from the command line: produce, consume, inspect and repair.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    add_cluster_option(parser, default=None)
    parser.add_argument(
        "--config",
        dest="client_settings",
        metavar="FILE",
        help="client settings: lines KEY=VALUE, as for Kafka's own tools but with no escapes by backslash, or a .toml "
        "file; ${NAME} stands for an environment variable",
    )
    parser.set_defaults(run=_teach)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog=parser.prog)
    for name, (module, summary) in _COMMANDS.items():
        if name in words:
            import_module(f"kadence_cli.{module}").add(commands, summary)
        else:
            commands.add_parser(name, help=summary, add_help=False)
    return parser


def _teach(arguments: argparse.Namespace) -> int:
    """Print the first steps, for ``kadence`` without a command; status 0."""
    sys.stdout.write(_FIRST)
    return 0


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise _Terminated


def _told(error: Exception, arguments: argparse.Namespace) -> str:
    """The error as text: for files, the system's text without its number; for clusters, with the cluster's name."""
    if isinstance(error, OSError) and not isinstance(error, KafkaError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    is_of_brokers = isinstance(error, KafkaTimeoutError | TransportError)
    if is_of_brokers and not isinstance(error, SchemaRegistryError):
        return said_of_cluster(str(error), arguments)
    return str(error)


def _give_up_output() -> None:
    """Discard output that stdout cannot write, because its reader has gone or a disk is full.

    Otherwise Python would try again when it closes stdout, print an error, and end with a status of its own.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None, parser: Parser | None = None) -> int:
    """Run one command; the exit status.

    Args:
        parser: of a program that is not ``kadence``, and ends as it does; its arguments have ``run`` and ``command``.
    """
    words = sys.argv[1:] if argv is None else argv
    is_completion = "_ARGCOMPLETE" in os.environ
    parser = parser or (make_parser() if is_completion else make_parser(words))
    if is_completion:
        # A shell asks what may come next: eval "$(kadence completion bash)"
        # Options are completed only behind a dash, so that names are listed without them.
        from kadence_cli.offered import offered

        import_module("argcomplete").autocomplete(
            parser, always_complete_options=False, default_completer=offered
        )
    arguments = parser.parse_args(times_joined(words))
    name = f"{parser.prog} {arguments.command}".rstrip()
    before = signal.signal(signal.SIGTERM, _terminate)
    log, handler = logging.getLogger("kadence"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("kadence: %(message)s"))
    log.addHandler(handler)
    try:
        status: int = arguments.run(arguments)
        # Flush here, where a failure is handled: the reader of the output may have gone.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except _Terminated:
        return 143
    except BrokenPipeError:
        # The reader of the output has closed the pipe.
        return 141
    except (ConfigError, UsageError) as error:
        say(f"{name}: {error}")
        files = settings_files(arguments) if isinstance(error, ConfigError) else []
        if files and not any(file in str(error) for file in files):
            say(f"  settings were taken from {' and '.join(files)}")
        return 2
    except ModuleNotFoundError as error:
        # Loaded for the first error of this kind.
        from kadence_cli.doctor import not_installed

        told = missing(error) or not_installed(error)
        if told is None:
            raise
        say(f"{name}: {told}")
        return 1
    except (KafkaError, CommandError, OSError) as error:
        say(f"{name}: {_told(error, arguments)}")
        for note in getattr(error, "__notes__", ()):
            say(f"  {note}")
        return 1
    finally:
        _give_up_output()
        signal.signal(signal.SIGTERM, before)
        log.removeHandler(handler)
    return status
