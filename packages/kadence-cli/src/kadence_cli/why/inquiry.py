"""Repeated looks at one group, for the thread of ``kadence top``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence_cli.why.asking import look_at, look_up
from kadence_cli.why.finding import Finding
from kadence_cli.why.looks import Evidence
from kadence_cli.why.page import headline
from kadence_cli.why.reasons import findings
from kadence_cli.why.watching import Watch

if TYPE_CHECKING:
    from kadence.admin import Admin

__all__ = ["Inquiry"]

_AGAIN_MS: Final = 30_000
"""The greatest age of evidence: a record is not fetched again for each look."""


class Inquiry:
    """Looks at one group at a time.

    Args:
        config: of the clients that look up records.
    """

    def __init__(self, admin: Admin, config: Mapping[str, Any]) -> None:
        self._admin = admin
        self._config = config
        self._watch = Watch("")
        self._evidence = Evidence()
        self._is_of: object = None
        self._looked_up_at = 0

    def ask(self, group: str, now: int, wall_ms: int) -> tuple[str, list[Finding]]:
        """Look once more: a headline, and the reasons.

        Raises:
            KafkaError: the group cannot be looked at.
        """
        if self._watch.group != group:
            self._watch, self._is_of = Watch(group), None
        watch = self._watch
        watch.add(look_at(self._admin, group), now, wall_ms / 1000)
        is_of = (watch.held_by_transactions, watch.held_by_records, watch.left_unread)
        if is_of != self._is_of or now - self._looked_up_at >= _AGAIN_MS:
            self._evidence = look_up(self._admin, self._config, watch)
            self._is_of, self._looked_up_at = is_of, now
        found = findings(watch, self._evidence, wall_ms)
        return headline(watch, found), found
