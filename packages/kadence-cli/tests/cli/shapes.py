"""What each command prints with --json: the fields of its lines. tools/docs.py writes them into docs/cli.md.

`tests/cli/test_shapes.py` runs each command and compares.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SHAPES", "Shape"]


@dataclass(frozen=True)
class Shape:
    """One command's JSON.

    Attributes:
        line: what one line stands for. fields: in their order, each always there; null where there is nothing to tell.
        sometimes: fields that are left out where there is nothing to tell.
        always: whether the command prints JSON in any case, and has no --json.
    """

    line: str
    fields: tuple[str, ...]
    sometimes: tuple[str, ...] = ()
    always: bool = False


def of(line: str, fields: str, *, sometimes: str = "", always: bool = False) -> Shape:
    return Shape(line, tuple(fields.split()), tuple(sometimes.split()), always)


_HANGING = (
    "topic partition start_offset producer_id producer_epoch coordinator_epoch transactional_id last_written "
    "silent_ms"
)

SHAPES: dict[str, Shape] = {
    "broker": of(
        "the broker, once it is ready", "bootstrap_servers", sometimes="schema_registry", always=True
    ),
    "produce --offsets": of("a record", "topic partition offset timestamp", always=True),
    "consume": of(
        "a record",
        "topic partition offset timestamp key value",
        sometimes="headers delivery_count",
        always=True,
    ),
    "topics list": of("a topic", "topic partitions internal"),
    "topics describe": of(
        "a partition", "topic partition leader replicas in_sync first_offset last_stable next_offset"
    ),
    "topics create": of("a topic", "topic partitions"),
    "topics grow": of("a topic", "topic partitions"),
    "topics config": of("a setting", "topic key value default"),
    "topics delete-records": of("a partition", "topic partition deleted_below first_offset next_offset"),
    "topics delete": of("a topic", "topic"),
    "groups list": of("a group", "group state type protocol"),
    "groups describe": of(
        "a member; of a group without members, the group",
        "group type state assignor coordinator member client host partitions",
    ),
    "groups lag": of(
        "a partition", "group type topic partition committed start last_stable end lag above member"
    ),
    "groups why": of("a reason", "group reason harm says partitions members held details evidence commands"),
    "groups reset": of("a partition", "group topic partition from to"),
    "groups forget": of("a partition", "group topic partition deleted"),
    "groups config": of("a setting", "group key value default"),
    "groups delete": of("a group", "group"),
    "transactions list": of("a transaction", "transactional_id coordinator producer_id state"),
    "transactions describe": of(
        "a transaction",
        "transactional_id coordinator producer_id producer_epoch state timeout_ms started duration_ms partitions",
    ),
    "transactions hanging": of("a transaction in a partition", _HANGING),
    "transactions abort": of("a transaction in a partition", _HANGING),
    "transactions fence": of(
        "a transactional id", "transactional_id state was producer_id producer_epoch partitions"
    ),
    "dead-letters list": of(
        "records of one origin and error",
        "topic origin partition error records oldest newest age value_bytes",
    ),
    "dead-letters show": of(
        "a dead letter record",
        "topic partition offset timestamp origin error message field attempts first last group key value "
        "value_bytes headers",
    ),
    "dead-letters replay": of("a dead letter record", "topic partition offset to to_partition to_offset"),
    "dead-letters drop": of("a partition", "topic partition dropped first_offset left"),
    "cluster": of("a broker", "cluster broker address rack controller"),
    "pipeline check": of("a mistake", "file line key mistake"),
    "pipeline plan": of("the plan", "origin ranges columns sample dead_letters"),
    "pipeline status": of(
        "the pipeline",
        "state",
        sometimes="name run_id host pid started_ms updated_ms sink batch batches rows_in rows_out undecoded dropped "
        "expectations rows_per_second growth_per_second lag error seconds_to_catch_up lag_by_partition "
        "committed_batch committed_offsets",
    ),
    "checkpoint show": of(
        "the checkpoint", "query committed_batch pending_batch began connector_reads_it sources"
    ),
    "doctor": of("a check", "check status found"),
}
