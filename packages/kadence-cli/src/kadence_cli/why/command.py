"""Runs ``kadence groups why``: looks at groups for some seconds, and prints why they lag."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kadence.clock import Clock, SystemClock, wall_ms
from kadence.errors import AuthenticationError, BrokerError, KafkaError
from kadence.printable import plural
from kadence.protocol import error_codes as ec
from kadence_cli.common import CommandError, client_config, print_json, say
from kadence_cli.group_types import KNOWN, described
from kadence_cli.names import chosen, no_such
from kadence_cli.reach import reached
from kadence_cli.same_cluster import SameCluster
from kadence_cli.why.asking import PATIENCE_S, look_at_all, look_up
from kadence_cli.why.finding import Finding, Harm
from kadence_cli.why.page import completed, print_page, rows
from kadence_cli.why.reasons import findings
from kadence_cli.why.watching import Watch

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["FOUND", "look_for", "run"]

_EVERY_S: Final = 1.0

_GLANCES: Final = 5
"""How many times members are asked for between two looks, if a group has lag and no members."""

FOUND: Final = 3
"""The exit status when a harmful reason was found."""

_REFUSED: Final = frozenset(
    {ec.GROUP_AUTHORIZATION_FAILED, ec.TOPIC_AUTHORIZATION_FAILED, ec.CLUSTER_AUTHORIZATION_FAILED}
)

pause: Callable[[float], None] = time.sleep
"""Wait between two looks; tests replace it."""

clock: Clock = SystemClock()


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    config = client_config(arguments)
    is_page = not arguments.json and (arguments.wide or sys.stdout.isatty())
    watches: dict[str, Watch] = {}
    found: dict[str, list[Finding]] = {}
    try:
        with reached(config, arguments) as admin:
            names = chosen(arguments.groups, lambda: _listed(admin), "group")
            if is_page:
                about = names[0] if len(names) == 1 else plural(len(names), "group")
                say(f"looking at {about} for {arguments.seconds:g} s …")
            watches = {name: Watch(name, patience_ms=int(arguments.seconds * 1000)) for name in names}
            refused = look_for(admin, watches, arguments.groups)
            for name, watch in watches.items():
                found[name] = (
                    [_refused(refused[name], name)]
                    if name in refused
                    else findings(watch, look_up(admin, config, watch), wall_ms())
                )
    except AuthenticationError as error:
        watches = watches or {name: Watch(name) for name in arguments.groups}
        found = {name: [_login_refused(error)] for name in watches}
    cluster = SameCluster.of(arguments, config)
    found = {name: completed(of_group, cluster) for name, of_group in found.items()}
    if is_page:
        print_page([(watches[name], found[name]) for name in _worst_first(found)], sys.stdout, cluster)
    else:
        for name in _worst_first(found):
            for row in rows(name, found[name]):
                print_json(row)
    return FOUND if any(each.harm < Harm.PASSES for of_group in found.values() for each in of_group) else 0


def _worst_first(found: Mapping[str, Sequence[Finding]]) -> list[str]:
    """The groups, the most harmful reasons first, and of these the greatest lag."""

    def harm(name: str) -> tuple[int, int, str]:
        worst = found[name][0] if found[name] else None
        return (Harm.PASSES + 1, 0, name) if worst is None else (worst.harm, -worst.held, name)

    return sorted(found, key=harm)


def look_for(admin: Admin, watches: dict[str, Watch], words: Iterable[str]) -> dict[str, BrokerError]:
    """Look at the groups until all reasons are known. Returns the errors of groups that this login may not describe.

    A group that was found by a pattern, and is deleted meanwhile, is removed from ``watches``.

    Args:
        words: the names and patterns of the command line.

    Raises:
        CommandError: there is no such group. KafkaError: they cannot be looked at.
    """
    refused: dict[str, BrokerError] = {}
    while True:
        looks = look_at_all(admin, [name for name in watches if name not in refused])
        for name, error in looks.errors.items():
            code = error.code if isinstance(error, BrokerError) else None
            if code == ec.GROUP_ID_NOT_FOUND and name in words:
                raise CommandError(_no_such(admin, name)) from None
            if code == ec.GROUP_ID_NOT_FOUND:
                del watches[name]
            elif isinstance(error, BrokerError) and code in _REFUSED:
                refused[name] = error
            else:
                raise error
        now, wall = clock.now_ms(), wall_ms() / 1000
        for name, look in looks.items():
            watches[name].add(look, now, wall)
        missing = max((watches[name].missing_ms for name in looks), default=0)
        if not missing:
            return refused
        _wait(admin, watches, min(_EVERY_S, missing / 1000))


def _wait(admin: Admin, watches: Mapping[str, Watch], seconds: float) -> None:
    """Wait for the next look. Groups that seem to have no members are asked for them meanwhile.

    A consumer that crashes at a record lives for less than a second.
    """
    empty = [name for name, watch in watches.items() if watch.is_left]
    if not empty:
        pause(seconds)
        return
    for _ in range(_GLANCES - 1):
        pause(seconds / _GLANCES)
        for name, group in described(admin, empty, PATIENCE_S).items():
            watches[name].glance(group, clock.now_ms(), wall_ms() / 1000)
    pause(seconds / _GLANCES)


def _listed(admin: Admin) -> list[str]:
    """The groups of supported types: a pattern matches only these."""
    return [each.group_id for each in admin.list_groups(timeout=PATIENCE_S) if each.group_type in KNOWN]


def _no_such(admin: Admin, group: str) -> str:
    try:
        listed = {each.group_id: each.group_type for each in admin.list_groups(timeout=PATIENCE_S)}
    except KafkaError:
        listed = {}
    if group in listed:
        return f"{group!r} is a {listed[group] or 'foreign'} group; this looks at consumer and share groups"
    return no_such("group", group, listed)


def _login_refused(error: AuthenticationError) -> Finding:
    """A reason: the brokers refuse this login, and so the group's consumers, if they use it."""
    return Finding(
        "login-refused",
        Harm.STOPS,
        "the brokers refuse this login",
        (str(error), "consumers with the same login read nothing"),
        ("kadence doctor",),
    )


def _refused(error: BrokerError, group: str) -> Finding:
    """A reason: this login may not describe the group."""
    return Finding(
        "not-allowed",
        Harm.STOPS,
        f"this login may not look at {group}",
        (str(error), "consumers with the same login may not read, either"),
        ("kadence doctor",),
    )
