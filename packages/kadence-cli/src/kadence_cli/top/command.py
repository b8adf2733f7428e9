"""The command line of ``kadence top``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from kadence.errors import MissingDependencyError
from kadence_cli.common import CommandError, add_client_options, add_command, client_config, cluster_asked
from kadence_cli.reach import quiet
from kadence_cli.same_cluster import SameCluster

__all__ = ["add", "run"]

_DESCRIPTION = """\
Watch consumer and share groups: members and their partitions, lag, rates, time
to catch up, rebalances. Press ? for the keys. It changes nothing in a group."""

_EXAMPLES = """\
  kadence top report                begins with this group
  kadence top --serve --port 8000   in a browser, on this machine"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence top``."""
    parser = add_command(commands, "top", summary, description=_DESCRIPTION, examples=_EXAMPLES)
    parser.add_argument("group", nargs="?", metavar="GROUP", help="the group to show first")
    parser.add_argument(
        "--delay",
        type=_delay,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two updates (default: 2)",
    )
    parser.add_argument(
        "--no-records",
        dest="records",
        action="store_false",
        help="show no records; implied by a --host that other machines can reach",
    )
    parser.add_argument(
        "--serve", action="store_true", help="show the screen in a browser (needs kadence[serve])"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address of --serve (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument(
        "--name",
        help="a further host name under which browsers reach --serve, such as that of a proxy",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port of --serve; 0: any free port (default: 8000)"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def _delay(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"a delay is 0.1 to 3600 seconds, not {text!r}")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence.config import AdminConfig

    config = client_config(arguments)
    # Errors in settings are printed here, before the screen is opened.
    AdminConfig.parse(config)
    if arguments.serve:
        from kadence_cli.top.serve import serve

        serve(arguments)
        return 0
    try:
        from kadence_cli.top.app import Top
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(("textual", "rich")):
            raise
        raise MissingDependencyError("kadence top needs textual: pip install 'kadence[cli]'") from error
    # In a browser the pipe to textual-serve is the screen.
    if not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ:
        raise CommandError(
            "kadence top needs a terminal; `kadence groups lag GROUP` prints the lag once, also into a pipe"
        )
    app = Top(
        config,
        group=arguments.group,
        delay=arguments.delay,
        records=arguments.records,
        cluster=SameCluster.of(arguments, config),
        name=cluster_asked(arguments, config["bootstrap.servers"]),
    )
    # The screen shows the client's log; a line on stderr would break the screen.
    with quiet():
        app.run()
    return app.return_code or 0
