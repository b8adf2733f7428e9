"""The alphabet of stories: all that a program may do, and all that a cluster may do, one row each.

A row says in which kinds of programs it happens, and for a call from where it is made. `life` and `cluster` carry the
rows out. What a simulation cannot have is not here: handlers on threads and in processes, signals and forks, which are
the operating system's to order (tests/work, tools/kill_work.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kadence.protocol import error_codes as codes

__all__ = ["ALL", "CALLS", "CODES", "KINDS", "LOOKS", "PLACES", "REQUESTS", "ROWS", "Row"]

KINDS: Final = {
    "p": "a loop of polls, that commits in some way",
    "i": "an iteration over records",
    "b": "the guide's loop of transactions (docs/transactions.md)",
    "w": "process",
    "x": "process in transactions",
    "r": "process over ranges that were read before",
    "t": "a loop of polls that begins by time",
}
ALL: Final = "".join(KINDS)

PLACES: Final = {
    "beside": ("another task", ALL),
    "asked": ("another task, while the coordinator is asked for offsets, or told of them", "pibwx"),
    "between": ("the task that reads, between two of its calls", "pibt"),
    "handling": ("the handler, or the body of the loop", ALL),
    "assigned": ("on_partitions_assigned", "pibwx"),
    "revoked": ("on_partitions_revoked", "pibwx"),
    "lost": ("on_partitions_lost", "pibwx"),
    "committed": ("the callback of commit_async", "pt"),
    "consumes": ("on_consume of an interceptor", "pibt"),
    "commits": ("on_commit of an interceptor", "piwt"),
}
"""From where a call is made, and in which kinds."""

_SYNC: Final = ("consumes", "commits")
"""Nothing can be awaited there."""

LOOKS: Final = (
    "assignment",
    "current_lag",
    "finished",
    "group_metadata",
    "health",
    "metric_names",
    "metrics",
    "network_lateness",
    "not_fetched",
    "paused",
    "rebalances",
    "stalls",
    "stopping",
    "subscription",
)
"""Calls that look, and change nothing: a row for each, and chance says from where."""

CALLS: Final[dict[str, str]] = {
    "assign": ALL,
    "assign_topics": ALL,
    "beginning_offsets": ALL,
    "close": ALL,
    "commit": "piwrt",
    "commit_async": "piwrt",
    "committed": ALL,
    "end_offsets": ALL,
    "enforce_rebalance": "pibwx",
    "incremental_assign": "pbrt",
    "incremental_unassign": ALL,
    "list_topics": ALL,
    "offsets_for_times": ALL,
    "partitions_for": ALL,
    "pause": ALL,
    "poll": ALL,
    "poll_arrow": "pibwx",
    "position": ALL,
    "process": "pibwx",
    "records": "pibwx",
    "resume": ALL,
    "seek": "pi",
    "seek_to_beginning": "pi",
    "seek_to_end": "p",
    "stop": ALL,
    "subscribe": "pibwx",
    "track": "pwx",
    "unsubscribe": ALL,
    "wakeup": ALL,
}
"""Calls that do something, and in which kinds: a row for each place."""

_READS: Final = ("poll", "poll_arrow", "process", "records")
"""Those that read: a loop that makes one of them while it has records in hand says that it has done those."""

_AT_ONCE: Final = ("commit_async", "enforce_rebalance", "pause", "resume", "stop", "track", "wakeup")
"""Those of them that are not awaited."""

REQUESTS: Final[dict[str, str]] = {
    "ConsumerGroupHeartbeat": "pibwx",
    "EndTxn": "bx",
    "AddPartitionsToTxn": "bx",
    "AddOffsetsToTxn": "bx",
    "Fetch": ALL,
    "FindCoordinator": ALL,
    "Heartbeat": "pibwx",
    "InitProducerId": "bwx",
    "JoinGroup": "pibwx",
    "LeaveGroup": "pibwx",
    "ListOffsets": ALL,
    "Metadata": ALL,
    "OffsetCommit": "pibwxr",
    "OffsetFetch": ALL,
    "Produce": "bwx",
    "SyncGroup": "pibwx",
    "TxnOffsetCommit": "bx",
}
"""What clients ask of brokers: a row for each that is answered late, and for each that is not answered at all."""

CODES: Final = (
    *sorted(codes.RETRIABLE),
    codes.UNKNOWN_SERVER_ERROR,
    codes.ILLEGAL_GENERATION,
    codes.UNKNOWN_MEMBER_ID,
    codes.REBALANCE_IN_PROGRESS,
    codes.TOPIC_AUTHORIZATION_FAILED,
    codes.GROUP_AUTHORIZATION_FAILED,
    codes.FENCED_MEMBER_EPOCH,
    codes.STALE_MEMBER_EPOCH,
    codes.INVALID_PRODUCER_EPOCH,
    codes.PRODUCER_FENCED,
)
"""Codes with which what a group asks of its coordinator, or a producer of a broker, is refused: a row for each."""

_ANEW: Final = "piwx"
"""Kinds that commit nothing of a topic for the one that is made anew. The guide's loop may be at work on its records
meanwhile, and names it: docs/transactions.md says to stop the programs before."""

_CLUSTER: Final[dict[str, str]] = {
    "topic deleted": "pibwx",
    "topic made anew with as many records": _ANEW,
    "topic made anew with fewer records": _ANEW,
    "topic made anew with more records": _ANEW,
    "topic made anew with fewer partitions": _ANEW,
    "topic made anew with more partitions": _ANEW,
    "topic made anew while nobody reads": "pibwx",
    "topic made anew when all is done": "piwx",
    "one of two topics deleted": "piwx",
    "partitions added": "pibwxt",
    "retention takes what is done": ALL,
    "retention takes what was not read": "pibwx",
    "retention takes retry records": "w",
    "offsets are not told while retry records wait": "w",
    "retention by time": "pibwx",
    "old timestamps": ALL,
    "timestamps ahead of the clock": "pibwx",
    "quiet for days": "piw",
    "coordinator moves": "pibwx",
    "leader moves": ALL,
    "a deserialiser refuses records": "pibwx",
    "a deserialiser refuses a large record": "pibwx",
    "letters are refused for good": "wx",
    "letters are too large": "wx",
    "offsets are refused for good": "x",
    "others commit a transaction": ALL,
    "others abort a transaction": ALL,
    "others leave a transaction open": ALL,
    "a start by time behind a transaction of old records": "t",
    "brokers away at start": ALL,
    "broker crashes": ALL,
    "broker stands still": ALL,
    "connections break": ALL,
    "program is cut off": ALL,
    "network is slow": ALL,
}
_MEMBERS: Final[dict[str, str]] = {
    "killed": ALL,
    "killed with its machine": ALL,
    "frozen": ALL,
    "frozen beyond its session": "pibwx",
    "told to end": ALL,
    "restarted while records come": "pibwxt",
    "another member comes": "pibwx",
    "another member goes": "pibwx",
    "hand-over while records come": "pibwx",
    "handlers stand still": "wxr",
    "tasks that assign at once": "rt",
}


class Row(NamedTuple):
    """One thing that may happen. ``place``: from where a call is made; "" for what is no call."""

    what: str
    kinds: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.place})" if self.place else self.what


def _calls() -> list[Row]:
    rows = [Row(call, ALL, "anywhere") for call in LOOKS]
    for call, kinds in CALLS.items():
        for place, (_, there) in PLACES.items():
            both = "".join(kind for kind in kinds if kind in there)
            if call in _READS and place in ("beside", "asked", "handling"):
                both = "".join(kind for kind in both if kind not in "pibt")
            if both and (place not in _SYNC or call in _AT_ONCE):
                rows.append(Row(call, both, place))
    return rows


ROWS: Final = (
    *_calls(),
    *(Row(f"{name} is answered late", kinds) for name, kinds in REQUESTS.items()),
    *(Row(f"{name} is not answered", kinds) for name, kinds in REQUESTS.items()),
    *(Row(f"refused with {codes.NAMES[code]}", "pibwx") for code in CODES),
    *(Row(what, kinds) for what, kinds in {**_CLUSTER, **_MEMBERS}.items()),
)
