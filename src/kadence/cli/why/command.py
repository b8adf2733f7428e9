"""Carries ``kadence groups why``: looks at a group for some seconds, and prints why it lags."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kadence.cli.common import CommandError, client_config, print_json, say
from kadence.cli.names import no_such
from kadence.cli.reach import reached
from kadence.cli.same_cluster import SameCluster
from kadence.cli.why.asking import PATIENCE_S, look_at, look_up
from kadence.cli.why.finding import Finding, Harm
from kadence.cli.why.page import completed, print_page, rows
from kadence.cli.why.reasons import findings
from kadence.cli.why.watching import Watch
from kadence.clock import Clock, SystemClock, wall_ms
from kadence.errors import AuthenticationError, BrokerError, KafkaError
from kadence.protocol import error_codes as ec

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["FOUND", "look_for", "run"]

_EVERY_S: Final = 1.0

FOUND: Final = 3
"""The exit status when a reason was found."""

_REFUSED: Final = frozenset(
    {ec.GROUP_AUTHORIZATION_FAILED, ec.TOPIC_AUTHORIZATION_FAILED, ec.CLUSTER_AUTHORIZATION_FAILED}
)

pause: Callable[[float], None] = time.sleep
"""Between two looks; tests let the world go on here."""

clock: Clock = SystemClock()


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    (group,) = arguments.groups
    config = client_config(arguments)
    is_page = not arguments.json and (arguments.wide or sys.stdout.isatty())
    watch = Watch(group, patience_ms=int(arguments.seconds * 1000))
    try:
        with reached(config, arguments) as admin:
            if is_page:
                say(f"looking at {group} for {arguments.seconds:g} s …")
            look_for(admin, watch)
            found = findings(watch, look_up(admin, config, watch), wall_ms())
    except (AuthenticationError, BrokerError) as error:
        refused = _refused(error, group)
        if refused is None:
            raise
        found = [refused]
    found = completed(found, SameCluster.of(arguments, config))
    if is_page:
        print_page(watch, found, sys.stdout)
    else:
        for row in rows(group, found):
            print_json(row)
    return FOUND if any(each.harm < Harm.PASSES for each in found) else 0


def look_for(admin: Admin, watch: Watch) -> None:
    """Look at the group until all reasons are known.

    Raises:
        CommandError: there is no such group. KafkaError: it cannot be looked at.
    """
    while True:
        try:
            look = look_at(admin, watch.group)
        except BrokerError as error:
            if error.code == ec.GROUP_ID_NOT_FOUND:
                raise CommandError(_no_such(admin, watch.group)) from None
            raise
        watch.add(look, clock.now_ms(), wall_ms() / 1000)
        if not watch.missing_ms:
            return
        pause(min(_EVERY_S, watch.missing_ms / 1000))


def _no_such(admin: Admin, group: str) -> str:
    try:
        listed = {each.group_id: each.group_type for each in admin.list_groups(timeout=PATIENCE_S)}
    except KafkaError:
        listed = {}
    if group in listed:
        return f"{group!r} is a {listed[group] or 'foreign'} group; this looks at consumer groups"
    return no_such("group", group, listed)


def _refused(error: AuthenticationError | BrokerError, group: str) -> Finding | None:
    """A login that may not look: what the group's consumers meet, if they log in as this command does."""
    if isinstance(error, AuthenticationError):
        return Finding(
            "login-refused",
            Harm.STOPS,
            "the brokers refuse this login",
            (str(error), "consumers with the same login read nothing"),
            ("kadence doctor",),
        )
    if error.code not in _REFUSED:
        return None
    return Finding(
        "not-allowed",
        Harm.STOPS,
        f"this login may not look at {group}",
        (str(error), "consumers with the same login may not read, either"),
        ("kadence doctor",),
    )
