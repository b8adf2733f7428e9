"""The command line of ``kadence groups why``. What it needs is loaded when it runs."""

from __future__ import annotations

import argparse
from typing import Final

__all__ = ["DESCRIPTION", "add_options", "run"]

_DEFAULT_S: Final = 12.0
"""Consumers commit every 5 s by default, so moving offsets have moved twice by then."""

DESCRIPTION: Final = """

It watches the groups together for some seconds, then prints the reasons, the
worst first, each with evidence and the commands to run next. It changes
nothing.
Status 3: a harmful reason was found. One is that this login may not describe a
group."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """--for."""
    parser.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        default=_DEFAULT_S,
        metavar="SECONDS",
        help="how long to look (default: 12). Use more for consumers that rarely commit, and 600 for rebalance loops",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"it looks for 1 to 3600 seconds, not {text!r}")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence_cli.why import command

    return command.run(arguments)
