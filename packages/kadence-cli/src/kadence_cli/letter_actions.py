"""The actions of ``kadence dead-letters``: dead letter records are read, shown, sent back and deleted."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.printable import plural
from kadence.work.letters import ERROR, place_of, replayed
from kadence_cli.common import (
    ClientConfig,
    CommandError,
    UsageError,
    client_config,
    keys_of_others,
    moment,
    print_json,
    print_rows,
    say,
)
from kadence_cli.letters import Choice, Letter, described, document
from kadence_cli.names import partitions
from kadence_cli.where import offsets, ranges, refuse_outside, tell_presumed

if TYPE_CHECKING:
    from kadence import Admin, Producer
    from kadence.producer import RecordFuture

__all__ = ["drop_letters", "list_letters", "replay_letters", "show_letters"]

_TOGETHER: Final = 10_000
"""The most unacknowledged records."""


def list_letters(admin: Admin, arguments: argparse.Namespace) -> None:
    """Count them by origin and error."""
    # `kadence top` is much to import.
    from kadence_cli.figures import duration

    found: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for letter in _letters(admin, arguments):
        origin = letter.origin
        found[
            letter.record.topic,
            None if origin is None else origin.topic,
            None if origin is None else origin.partition,
            letter.error,
        ].append((letter.at, letter.left_out.get("value", 0)))
    now = time.time()
    rows = [
        {
            "topic": topic,
            "origin": origin,
            "partition": partition,
            "error": error,
            "records": len(each),
            "oldest": moment(oldest := min(each)[0]),
            "newest": moment(newest := max(each)[0]),
            "age": f"{duration(now - oldest / 1000)} to {duration(now - newest / 1000)}",
            "value_bytes": sum(size for _, size in each) or None,
        }
        for (topic, origin, partition, error), each in sorted(
            found.items(), key=lambda item: [(part is not None, part) for part in item[0]]
        )
    ]
    columns = ["topic", "origin", "partition", "error", "records", "age"]
    if any(row["value_bytes"] for row in rows):
        columns.append("value_bytes")
    print_rows(rows, as_json=arguments.json, wide=arguments.wide, columns=() if arguments.wide else columns)


def show_letters(admin: Admin, arguments: argparse.Namespace) -> None:
    """Show each of the chosen records."""
    if arguments.max_records is not None and arguments.max_records < 1:
        raise UsageError(f"--max-records must be at least 1, not {arguments.max_records}")
    as_text = not arguments.json and (arguments.wide or sys.stdout.isatty())
    for count, letter in enumerate(_letters(admin, arguments), 1):
        if as_text:
            print("\n".join(described(letter)))
        else:
            print_json(document(letter))
        if count == arguments.max_records:
            break


def replay_letters(admin: Admin, arguments: argparse.Namespace) -> int:
    """Send the chosen records back to where they came from, or to another topic; the exit status."""
    from kadence import Producer

    if not (arguments.all or arguments.offset or arguments.error or arguments.origin):
        raise UsageError("say which dead letters: --offset, --error, --origin, or --all")
    if arguments.all and (arguments.offset or arguments.error or arguments.origin):
        raise UsageError("--all is for all dead letters; leave out --offset, --error and --origin")
    there = _Topics(admin)
    if arguments.to:
        # A topic that is misspelt ends it; one that a dead letter names is that one's matter.
        there.partitions_of(arguments.to)
    rows: list[dict[str, Any]] = []
    failed = 0
    pending: list[tuple[dict[str, Any], RecordFuture]] = []

    def settle() -> None:
        nonlocal failed
        from kadence import KafkaError

        for row, future in pending:
            try:
                place = future.result()
            except KafkaError as error:
                failed += 1
                say(f"kadence dead-letters: {row['topic']}-{row['partition']}@{row['offset']}: {error}")
                continue
            rows.append({**row, "to_partition": place.partition, "to_offset": place.offset})
        pending.clear()

    with Producer(_known(arguments, "ProducerConfig")) as producer:
        for letter in _letters(admin, arguments):
            try:
                to = _target(letter, arguments, there)
                row = {
                    "topic": letter.record.topic,
                    "partition": letter.record.partition,
                    "offset": letter.record.offset,
                    "to": to.topic,
                }
                if arguments.dry_run:
                    rows.append({**row, "to_partition": to.partition, "to_offset": None})
                    continue
                pending.append((row, _send(producer, letter, to)))
            except _NotSentError as problem:
                failed += 1
                say(f"kadence dead-letters: {place_of(letter.record)} is not sent: {problem}")
                continue
            if len(pending) >= _TOGETHER:
                settle()
        producer.flush()
        settle()
    print_rows(rows, as_json=arguments.json, wide=arguments.wide)
    if arguments.dry_run:
        say(
            f"{plural(len(rows), 'dead letter')} would be sent{f', {failed:,} not' if failed else ''}; nothing was "
            "(--dry-run)"
        )
    else:
        say(f"{plural(len(rows), 'dead letter')} sent" + (f", {failed:,} not" if failed else ""))
    return 1 if failed else 0


def drop_letters(admin: Admin, arguments: argparse.Namespace) -> None:
    """Delete all before a place."""
    chosen = partitions(admin, *arguments.topics)
    held = ranges(admin, chosen)
    refuse_outside(arguments.before, held)
    tell_presumed(arguments.before, "--before")
    before = offsets(admin, arguments.before, held, client_config(arguments, "ConsumerConfig"))
    if not arguments.dry_run:
        admin.delete_records(before)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "dropped": before[tp] - held[tp].first,
            "first_offset": before[tp],
            "left": held[tp].end - before[tp],
        }
        for tp in chosen
    ]
    print_rows(rows, as_json=arguments.json, wide=arguments.wide)
    if arguments.dry_run:
        say("nothing was deleted (--dry-run)")


def _letters(admin: Admin, arguments: argparse.Namespace) -> Iterator[Letter]:
    """The chosen records up to the present end, partition by partition as they are fetched."""
    from kadence import Consumer

    held = ranges(admin, partitions(admin, *arguments.topics))
    choice = Choice(frozenset(arguments.offset), frozenset(arguments.error), frozenset(arguments.origin))
    with Consumer(_known(arguments, "ConsumerConfig")) as consumer:
        spans = {}
        for tp, each in held.items():
            first, end = each.first, each.end
            if choice.offsets:
                # A record at the end of a long topic need not be read from the topic's beginning.
                first = max(first, min(choice.offsets))
                end = min(end, max(choice.offsets) + 1)
            if first < end:
                spans[tp] = (first, end)
        if spans:
            consumer.assign(spans)
            yield from choice.among(arguments.losses.records(consumer))


def _known(arguments: argparse.Namespace, client: ClientConfig) -> dict[str, Any]:
    """The given settings that this client has. The consumer refuses settings that no client has."""
    given = client_config(arguments, client)
    others = keys_of_others(client)
    known = {name: value for name, value in given.items() if name.replace("_", ".") not in others}
    return {**known, "auto.offset.reset": "none"} if client == "ConsumerConfig" else known


class _NotSentError(Exception):
    """Why one dead letter is not sent; the others are."""


class _Target(NamedTuple):
    """Where a record goes. partition: None: the partitioner chooses."""

    topic: str
    partition: int | None


class _Topics:
    """The topics that dead letters go to, each looked up once."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._found: dict[str, int | str] = {}

    def partitions_of(self, topic: str) -> int:
        """How many it has.

        Raises:
            CommandError: there is no such topic.
        """
        return len(partitions(self._admin, topic.partition(":")[0]))

    def of_origin(self, topic: str) -> int:
        """How many a topic has that a header names.

        Raises:
            _NotSentError: there is none, or none that may be described.
        """
        from kadence import InvalidTopicError, TopicAuthorizationError

        if topic not in self._found:
            try:
                self._found[topic] = self.partitions_of(topic)
            except (CommandError, InvalidTopicError, TopicAuthorizationError) as problem:
                self._found[topic] = f"{problem}; name another topic with --to"
        found = self._found[topic]
        if isinstance(found, str):
            raise _NotSentError(found)
        return found


def _target(letter: Letter, arguments: argparse.Namespace, there: _Topics) -> _Target:
    if letter.left_out:
        raise _NotSentError(_incomplete(letter))
    if arguments.to:
        if any(name.startswith(ERROR) and name.endswith(".bytes") for name, _ in letter.headers):
            raise _NotSentError(
                "a part of it was left out when it was written to an earlier dead letter topic; without --to it "
                "goes back there"
            )
        return _Target(str(arguments.to), None)
    if letter.origin is None:
        raise _NotSentError(
            "it does not say where it came from (header kadence.error.topic); name a topic with --to"
        )
    topic, partition = letter.origin
    return _Target(topic, partition if partition < there.of_origin(topic) else None)


def _incomplete(letter: Letter) -> str:
    """Why it is not sent: what came out would be another record."""
    missing = " and ".join(f"{part} ({size} bytes)" for part, size in letter.left_out.items())
    where = (
        ""
        if letter.origin is None
        else f"; the record itself was {letter.origin}@{letter.offset}, and may still be there"
    )
    return f"it has no {missing}, which was too large for the dead letter topic{where}"


def _send(producer: Producer, letter: Letter, to: _Target) -> RecordFuture:
    record = replayed(letter.record, *to)
    return producer.send(
        record.topic,
        record.value,
        record.key,
        partition=record.partition,
        timestamp=record.timestamp,
        headers=record.headers,
    )
