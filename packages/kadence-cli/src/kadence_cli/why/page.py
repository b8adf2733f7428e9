"""Findings as a page for people, and as rows for scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from shlex import quote
from typing import IO, Any, Final

from kadence.lazy_dataclasses import replace
from kadence.printable import plural, printable
from kadence_cli.figures import count, duration
from kadence_cli.names import spelled
from kadence_cli.same_cluster import SameCluster
from kadence_cli.tables import terminal_width
from kadence_cli.why.finding import Finding, Harm
from kadence_cli.why.watching import Watch

__all__ = ["completed", "headline", "lines", "print_page", "rows"]

_HARM: Final = {Harm.LOSES: "loses records", Harm.STOPS: "stops", Harm.SLOWS: "slows", Harm.PASSES: "passes"}


def rows(group: str, found: Sequence[Finding]) -> list[dict[str, Any]]:
    """A row for each reason, the worst first; all have the same fields."""
    return [
        {
            "group": group,
            "reason": each.reason,
            "harm": each.harm.name.lower(),
            "says": each.says,
            "partitions": [spelled(tp) for tp in each.partitions],
            "members": list(each.members),
            "held": each.held,
            "details": dict(each.details),
            "evidence": list(each.evidence),
            "commands": list(each.commands),
        }
        for each in found
    ]


def completed(found: Sequence[Finding], cluster: SameCluster) -> list[Finding]:
    """The reasons with commands that reach the same cluster when they are copied."""
    return [replace(each, commands=tuple(map(cluster.command, each.commands))) for each in found]


def lines(found: Sequence[Finding], width: int) -> list[str]:
    """The reasons, in wrapped lines."""
    made: list[str] = []
    for number, each in enumerate(found, 1):
        mark = f"{number}. "
        made += ["", *_wrapped(f"{_HARM[each.harm].upper()}: {each.says}", width, mark, "   ")]
        for line in each.evidence:
            made += _wrapped(line, width, "   - ", "     ")
        # A command is not cut or wrapped, so that it can be copied.
        made += [f"   $ {printable(command)}" for command in each.commands]
    return made


def headline(watch: Watch, found: Sequence[Finding]) -> str:
    """The line before the reasons."""
    harmful = [each for each in found if each.harm < Harm.PASSES]
    seconds = duration(watch.span_ms / 1000)
    # A look of some seconds may miss events that happen once in some minutes.
    nothing = f"nothing harmful seen in {seconds}" if found else f"nothing seen in {seconds}"
    said = plural(len(harmful), "reason") if harmful else nothing
    if watch.latest is not None and watch.missing_ms:
        said = (
            f"{plural(len(harmful), 'reason')} so far, looking for {duration(watch.missing_ms / 1000)} more"
        )
    look = watch.latest
    if look is None:
        return f"{printable(watch.group)}: {said} (it could not be looked at)"
    lag = sum(each.lag or 0 for each in look.partitions.values())
    about = (
        f"{look.description.state}, {plural(len(look.description.members), 'member')}, "
        f"{plural(len(look.partitions), 'partition')}, lag {count(lag)}"
    )
    looked = f"; looked for {seconds}" if harmful or watch.missing_ms else ""
    return f"{printable(watch.group)}: {said} ({about}{looked})"


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        printable(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def print_page(
    groups: Sequence[tuple[Watch, Sequence[Finding]]], stream: IO[str], cluster: SameCluster
) -> None:
    """Print the reasons of groups to a terminal, harmful ones in bold."""
    is_terminal = stream.isatty()
    made: list[str] = []
    for watch, found in groups:
        if made and made[-1].startswith(" "):
            made.append("")
        made += [headline(watch, found), *lines(found, terminal_width(stream))]
    if not any(found for _, found in groups):
        longer = cluster.command(
            f"kadence groups why {' '.join(quote(watch.group) for watch, _ in groups)} --for 600"
        )
        made += ["   what happens once in some minutes, such as a rebalance loop, takes a longer look:"]
        made += [f"   $ {printable(longer)}"]
    for line in made:
        is_head = line and not line.startswith(" ")
        print(f"\x1b[1m{line}\x1b[0m" if is_terminal and is_head else line, file=stream)
