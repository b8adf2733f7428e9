"""The actions of ``kadence groups`` on groups of each type: their list, members, settings and end."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kadence.admin import ConfigResource
from kadence.client.dead_letter_topics import comes_back
from kadence.protocol import error_codes as ec
from kadence_cli.common import (
    CommandError,
    client_config,
    print_deleted,
    print_rows,
    read_settings,
    say,
)
from kadence_cli.group_offsets import forget, lags, reset
from kadence_cli.group_types import KNOWN, described
from kadence_cli.names import chosen, matching, spelled
from kadence_cli.parts import Parts
from kadence_cli.reach import reached

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["run"]

Action = Callable[["Admin", argparse.Namespace, Parts], None]


def run(arguments: argparse.Namespace) -> int:
    """Run an action; the exit status."""
    with reached(client_config(arguments), arguments) as admin:
        parts = Parts(
            arguments.command,
            "group",
            ec.GROUP_ID_NOT_FOUND,
            lambda: {each.group_id: each.group_type for each in admin.list_groups()},
            KNOWN,
        )
        _ACTIONS[arguments.action](admin, arguments, parts)
    return parts.status


def _show(rows: list[dict[str, Any]], arguments: argparse.Namespace, *columns: str) -> None:
    print_rows(rows, as_json=arguments.json, wide=arguments.wide, columns=columns)


def _names(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    return chosen(arguments.groups, lambda: _listed(admin), "group")


def _listed(admin: Admin) -> list[str]:
    """Groups that have partitions and offsets: a pattern matches only these."""
    return [group.group_id for group in admin.list_groups() if group.group_type in KNOWN]


def _list(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    listed = {group.group_id: group for group in admin.list_groups()}
    states, types = arguments.state, arguments.type
    rows = [
        {
            "group": name,
            "state": listed[name].state,
            "type": listed[name].group_type,
            "protocol": listed[name].protocol_type,
        }
        for name in matching(listed, arguments.groups)
        if not states or listed[name].state.lower() in states
        if not types or listed[name].group_type in types
    ]
    _show(rows, arguments, "group", "state", "type", "protocol")


def _describe(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    rows: list[dict[str, Any]] = []
    for name, group in parts.done(described(admin, _names(admin, arguments))).items():
        about = {
            "group": name,
            "type": group.group_type,
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
        }
        rows += [
            {
                **about,
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [spelled(tp) for tp in sorted(member.assignment)],
            }
            for member in group.members
        ]
        if not group.members:
            rows.append({**about, "member": None, "client": None, "host": None, "partitions": []})
    columns = ("group", "state", "assignor", "member", "client", "host", "partitions")
    _show(rows, arguments, *(() if arguments.wide else columns))


def _lag(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    lags(admin, _names(admin, arguments), arguments, parts)


_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_COPIES: Final = "errors.deadletterqueue.copy.record.enable"
_KEYS: Final = {
    "share": ("share.", "errors."),
    "consumer": ("consumer.",),
    "classic": ("consumer.",),
    "streams": ("streams.",),
}
"""Beginnings of the keys that groups of a type have."""


def _config(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    wanted = [ConfigResource("group", name) for name in _names(admin, arguments)]
    changes: dict[str, str | None] = {
        **read_settings(arguments.set, "--set"),
        **dict.fromkeys(arguments.unset),
    }
    if changes:
        _refuse_dead_letters(admin, [each.name for each in wanted], changes)
        wanted = list(
            parts.done(admin.incremental_alter_configs(dict.fromkeys(wanted, changes), raise_errors=False))
        )
    found = parts.done(admin.describe_configs(wanted, raise_errors=False))
    rows = [
        {"group": resource.name, "key": key, "value": entry.value, "default": entry.is_default}
        for resource, entries in found.items()
        for key, entry in sorted(entries.items())
        if (arguments.all or not entry.is_default)
        and key.startswith(_KEYS.get(parts.type_of(resource.name) or "", ""))
    ]
    _show(rows, arguments, "group", "key", "value", "default")


def _refuse_dead_letters(admin: Admin, groups: list[str], changes: dict[str, str | None]) -> None:
    """Refuse a dead letter topic that brokers would take, and then not write to or fill without end.

    Raises:
        CommandError: names what is wrong with it.
    """
    topic, copies = changes.get(_DEAD_LETTERS), changes.get(_COPIES)
    if not topic:
        return
    queues = admin.describe_dead_letter_queues(
        groups, topic=topic, copies_records=None if copies is None else copies == "true", raise_errors=False
    )
    for group, queue in queues.items():
        if queue.faults:
            raise CommandError(
                f"brokers would not write dead letters of {group!r} to {topic!r}, and rejected records would be lost: "
                + "; ".join(queue.faults)
            )
        if queue.is_read:
            raise CommandError(f"{group!r}: {comes_back(topic)}")
    for group, error in queues.errors.items():
        say(f"kadence groups: whether brokers write dead letters of {group!r} to it is not known: {error}")


def _delete(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    # Brokers delete groups of each type by the same request.
    deleted = parts.done(admin.delete_consumer_groups(arguments.groups, raise_errors=False))
    print_deleted("group", deleted, arguments)


_ACTIONS: Final[dict[str, Action]] = {
    "list": _list,
    "describe": _describe,
    "lag": _lag,
    "reset": reset,
    "forget": forget,
    "config": _config,
    "delete": _delete,
}
