"""``kadence transactions``: lists transactions, finds hanging ones, and ends them (KIP-664)."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from kadence.clock import wall_ms
from kadence.errors import BrokerError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol import error_codes as ec
from kadence_cli.common import (
    CommandError,
    UsageError,
    add_actions,
    add_client_options,
    add_command,
    add_row_options,
    client_config,
    moment,
    print_rows,
    say,
)
from kadence_cli.names import chosen, matching, partitions, spelled
from kadence_cli.parts import Parts
from kadence_cli.reach import reached

if TYPE_CHECKING:
    from kadence import Admin, TopicPartition
    from kadence.admin import ProducerState, TransactionDescription, TransactionListing

__all__ = ["Hanging", "add", "hanging", "known_to_coordinators", "run"]

_DESCRIPTION = """\
List and describe transactions, find hanging ones, and end them."""

_EXAMPLES = """\
  kadence transactions list 'bill*' --state ongoing
  kadence transactions hanging orders:0,3 --older-than 60
  kadence transactions abort orders:3 --start-offset 1200 --dry-run
  kadence transactions fence billing-1"""

_HANGING: Final = """

A transaction hangs if it is open in a partition and its coordinator does not
know it there: no timeout ends it. The login must be allowed to describe all
transactional ids: a transaction whose id it may not see looks as if it hung."""

_ABORT: Final = """

It refuses one that its coordinator knows there: use `fence` for that."""

_FENCE: Final = """

A producer that still runs then fails, and must be restarted. `state` is the
state after the command, `was` and `partitions` are from before it."""

_MOST_TIMEOUT_S: Final = 900.0
"""The longest transaction that brokers allow by default (``transaction.max.timeout.ms``)."""

_STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class Hanging:
    """A hanging transaction: open in a partition, and not known to its coordinator, which will not end it there.

    Attributes:
        transactional_id: None: no coordinator knows the producer any more.
    """

    partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None


def hanging(
    producers: Mapping[TopicPartition, Iterable[ProducerState]],
    listed: Iterable[TransactionListing],
    described: Mapping[str, TransactionDescription],
    now_ms: int,
    older_than_ms: float,
) -> list[Hanging]:
    """The transactions that hang, by partition. Kafka's `find-hanging` decides in the same way.

    Args:
        producers: the producers that leaders remember. listed: their transactional ids. described: the coordinators'
            states of these.
        now_ms: ms since 1970. older_than_ms: for how long the producer must have been silent.
    """
    names = {each.producer_id: each.transactional_id for each in listed}
    found = []
    for tp in sorted(producers):
        for each in producers[tp]:
            is_silent = each.last_timestamp is None or now_ms - each.last_timestamp >= older_than_ms
            if each.transaction_start is None or not is_silent:
                continue
            name = names.get(each.producer_id)
            known = None if name is None else described.get(name)
            if known is None or tp not in known.partitions:
                found.append(Hanging(tp, each, name))
    return found


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence transactions``."""
    parser = add_command(
        commands,
        "transactions",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = add_actions(parser)

    def action(name: str, summary: str, function: Any, more: str = "") -> argparse.ArgumentParser:
        sub = add_command(actions, name, summary, description=f"{summary[0].upper()}{summary[1:]}.{more}")
        add_row_options(sub)
        add_client_options(sub)
        sub.set_defaults(run=run, action_function=function)
        return sub

    listing = action("list", "list transactional ids, and the state of their transactions", _list)
    listing.add_argument(
        "ids", nargs="*", metavar="PATTERN", help="names with * ? [abc], in quotes; default: all"
    )
    listing.add_argument(
        "--state",
        metavar="STATE",
        type=_state,
        action="append",
        default=[],
        help="only transactions in this state, e.g. ongoing; repeatable",
    )
    describing = action(
        "describe", "show since when transactions are open, and in which partitions", _describe
    )
    describing.add_argument(
        "ids", nargs="+", metavar="ID|PATTERN", help="a transactional id, or ids with * ? [abc], in quotes"
    )
    finding = action("hanging", "find transactions that hang", _hanging, _HANGING)
    finding.add_argument(
        "topics",
        nargs="*",
        metavar="TOPIC[:0,1,…]",
        help="a topic, or some of its partitions; default: all topics",
    )
    finding.add_argument(
        "--older-than",
        type=float,
        default=_MOST_TIMEOUT_S,
        metavar="SECONDS",
        help="only transactions whose producer has written nothing to the partition for so long (default: 900, the "
        "longest transaction.timeout.ms that brokers allow by default)",
    )
    abort = action("abort", "abort a transaction that hangs in a partition", _abort, _ABORT)
    abort.add_argument("partition", metavar="TOPIC:PARTITION", help="the partition in which it is open")
    abort.add_argument(
        "--start-offset",
        type=_offset,
        required=True,
        metavar="OFFSET",
        help="where it begins in the partition, as `hanging` shows it",
    )
    abort.add_argument("--dry-run", action="store_true", help="show what would be aborted")
    fence = action("fence", "abort the open transactions of producers, and fence them", _fence, _FENCE)
    fence.add_argument("ids", nargs="+", metavar="ID", help="a transactional id")


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    with reached(client_config(arguments), arguments) as admin:
        parts = Parts(
            arguments.command,
            "transaction",
            ec.TRANSACTIONAL_ID_NOT_FOUND,
            lambda: dict.fromkeys(_listed(admin), ""),
        )
        arguments.action_function(admin, arguments, parts)
    return parts.status


def _listed(admin: Admin) -> list[str]:
    return [each.transactional_id for each in admin.list_transactions()]


def _state(text: str) -> str:
    known = {each.lower(): each for each in _STATES}
    state = known.get(text.replace("-", "").lower())
    if state is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a state of a transaction: give one of {', '.join(known)}"
        )
    return state


def _offset(text: str) -> int:
    """An offset; also with the commas that a table shows."""
    plain = text.replace(",", "")
    if not plain.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset: give a whole number")
    return int(plain)


def _show(rows: list[dict[str, Any]], arguments: argparse.Namespace, *columns: str) -> None:
    print_rows(rows, as_json=arguments.json, wide=arguments.wide, columns=columns)


def _list(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    listed = {each.transactional_id: each for each in admin.list_transactions(states=arguments.state)}
    rows = [
        {
            "transactional_id": name,
            "coordinator": listed[name].coordinator,
            "producer_id": listed[name].producer_id,
            "state": listed[name].state,
        }
        for name in matching(listed, arguments.ids)
    ]
    _show(rows, arguments, "transactional_id", "coordinator", "producer_id", "state")


def _describe(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    names = chosen(arguments.ids, lambda: _listed(admin), "transaction")
    now = wall_ms()
    rows = [
        {
            "transactional_id": name,
            "coordinator": each.coordinator,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "state": each.state,
            "timeout_ms": each.timeout_ms,
            "started": moment(each.started_ms),
            "duration_ms": None if each.started_ms is None else max(0, now - each.started_ms),
            "partitions": [spelled(tp) for tp in sorted(each.partitions)],
        }
        for name, each in parts.done(admin.describe_transactions(names, raise_errors=False)).items()
    ]
    columns = ("transactional_id", "state", "started", "partitions")
    _show(rows, arguments, *(() if arguments.wide else columns))


def _hanging(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    if not arguments.older_than >= 0:
        raise UsageError(f"--older-than takes seconds, at least 0, not {arguments.older_than:g}")
    now = wall_ms()
    found = _found(admin, _partitions_of(admin, arguments.topics), now, arguments.older_than * 1000)
    _show_hanging(found, now, arguments)
    if not found and not arguments.json:
        say("no transaction hangs")


def _show_hanging(found: list[Hanging], now_ms: int, arguments: argparse.Namespace) -> None:
    columns = ("topic", "partition", "start_offset", "producer_id", "last_written")
    if found:
        _show([_row(each, now_ms) for each in found], arguments, *(() if arguments.wide else columns))


def _row(found: Hanging, now_ms: int) -> dict[str, Any]:
    producer = found.producer
    written = producer.last_timestamp
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "start_offset": producer.transaction_start,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "transactional_id": found.transactional_id,
        "last_written": moment(written),
        "silent_ms": None if written is None else max(0, now_ms - written),
    }


def _abort(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    chosen_partitions = partitions(admin, arguments.partition)
    if len(chosen_partitions) != 1 or ":" not in arguments.partition:
        raise UsageError(f"give one partition, such as orders:3, not {arguments.partition!r}")
    (tp,) = chosen_partitions
    now = wall_ms()
    here = admin.describe_producers(tp)[tp]
    producer = next((each for each in here if each.transaction_start == arguments.start_offset), None)
    if producer is None:
        begun = sorted(each.transaction_start for each in here if each.transaction_start is not None)
        there = f"open ones begin at {', '.join(map(str, begun))}" if begun else "none is open there"
        raise CommandError(
            f"no transaction of {spelled(tp)} begins at offset {arguments.start_offset}: {there}"
        )
    found = _judged(admin, {tp: [producer]}, now, 0)
    if not found:
        names = [
            each.transactional_id for each in admin.list_transactions(producer_ids=[producer.producer_id])
        ]
        raise CommandError(
            "the coordinator knows this transaction, so it does not hang: `kadence transactions fence "
            f"{' '.join(map(quote, names))}` aborts it in all its partitions"
        )
    if not arguments.dry_run:
        admin.abort_transaction(
            tp,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            # As Kafka's tool does: a marker needs an epoch, and a partition without one accepts any.
            coordinator_epoch=producer.coordinator_epoch or 0,
        )
    _show_hanging(found, now, arguments)
    if arguments.dry_run:
        say("nothing was aborted (--dry-run)")


def _fence(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    # An unknown id is mistyped. Fencing would create it.
    before = parts.done(admin.describe_transactions(arguments.ids, raise_errors=False))
    fenced = parts.done(admin.fence_producers(before, raise_errors=False))
    after = admin.describe_transactions(fenced, raise_errors=False)
    rows = [
        {
            "transactional_id": name,
            "state": after[name].state if name in after else None,
            "was": before[name].state,
            "producer_id": each.producer_id,
            "producer_epoch": each.epoch,
            "partitions": [spelled(tp) for tp in sorted(before[name].partitions)],
        }
        for name, each in fenced.items()
    ]
    _show(rows, arguments)


# ---------------------------------------------------------------- looking


def _partitions_of(admin: Admin, words: Collection[str]) -> list[TopicPartition]:
    from kadence import TopicPartition

    if words:
        return partitions(admin, *words)
    topics = admin.list_topics(internal=True)
    return [TopicPartition(name, info.partition) for name in topics for info in topics[name].partitions]


def _found(
    admin: Admin, wanted: Collection[TopicPartition], now_ms: int, older_than_ms: float
) -> list[Hanging]:
    producers = admin.describe_producers(wanted, raise_errors=False)
    for tp, error in producers.errors.items():
        say(f"{spelled(tp)} was not checked: {error}")
    return _judged(admin, producers, now_ms, older_than_ms)


def _judged(
    admin: Admin,
    producers: Mapping[TopicPartition, list[ProducerState]],
    now_ms: int,
    older_than_ms: float,
) -> list[Hanging]:
    ids = {
        each.producer_id for here in producers.values() for each in here if each.transaction_start is not None
    }
    return hanging(producers, *known_to_coordinators(admin, ids), now_ms, older_than_ms)


def known_to_coordinators(
    admin: Admin, producer_ids: Collection[int], timeout: float | None = None
) -> tuple[list[TransactionListing], Mapping[str, TransactionDescription]]:
    """The transactional ids of producers, and their coordinators' states of them.

    Raises:
        KafkaError: a coordinator could not be asked. Its transactions would look as if they hung, and be aborted.
    """
    if not producer_ids:
        return [], {}
    listed = admin.list_transactions(producer_ids=sorted(producer_ids), timeout=timeout)
    if not listed:
        return [], {}
    names = [each.transactional_id for each in listed]
    described = admin.describe_transactions(names, raise_errors=False, timeout=timeout)
    for error in described.errors.values():
        if not (isinstance(error, BrokerError) and error.code == ec.TRANSACTIONAL_ID_NOT_FOUND):
            raise error
    return listed, described
