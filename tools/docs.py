"""Writes the pages of docs/ that are drawn from the code, so that they cannot say anything else.

python tools/docs.py           writes docs/configuration.md, docs/cli.md and docs/states.md, and drawn parts of others
python tools/docs.py --check   writes nothing; fails when something would change
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

from kadence import Consumer, Producer, admin, config
from kadence.broker.handlers import HANDLERS
from kadence.broker.settings import Settings
from kadence.cli.main import make_parser as command_line_parser
from kadence.consumer.group import classic_joining, member_states
from kadence.coordinator.classic import group
from kadence.producer import transaction_states
from kadence.protocol.registry import api_name
from kadence.spark import client_settings, option_names
from kadence.spark.decode import options as decode_options
from kadence.spark.lakehouse import options as lakehouse_options
from kadence.spark.pipeline import model as pipeline_model
from kadence.spark.pipeline.schema import schema_text
from kadence.spark.sink import columns as sink_columns
from kadence.spark.sink import options as sink_options
from kadence.spark.source import options as spark_options
from kadence.spark.source import schema as spark_schema
from reference_text import entry, names

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTE = "<!-- Written by tools/docs.py; change the table in the code instead. -->"


def configuration() -> str:
    """The reference of all keys: those that every client has once, then what each client adds."""
    common = {key.name for key in config.keys(config.ClientConfig)}
    parts = [
        "# Configuration",
        NOTE,
        (
            "Settings have Kafka's names. Give them in a dictionary, as keywords in snake_case, or both: "
            '`Consumer({"group.id": "g"}, max_poll_records=100)`. An unknown key is refused, and the error suggests '
            "the nearest one."
        ),
        "## Every client",
        key_table(config.keys(config.ClientConfig)),
    ]
    for title, table in (
        ("Consumer", config.ConsumerConfig),
        ("Producer", config.ProducerConfig),
        ("Admin", config.AdminConfig),
    ):
        own = [key for key in config.keys(table) if key.name not in common]
        if own:
            parts += [f"## {title}", key_table(own)]
    broker = [f"| `{each.metadata['name']}` | {shown(each.default)} |" for each in fields(Settings)]
    parts += [
        "## Embedded broker",
        (
            "The settings of Kafka's brokers that the embedded broker knows: `Broker(config={...})`, or "
            "`kadence broker -X KEY=VALUE`."
        ),
        "\n".join(["| key | default |", "|---|---|", *broker]),
    ]
    return "\n\n".join(parts) + "\n"


def key_table(rows: list[config.Key]) -> str:
    lines = ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for key in rows:
        origin = f" ({key.since})" if key.since else ""
        cells = [f"`{key.name}`", key.kind, shown(key.default), allowed(key), f"{key.doc}{origin}"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def shown(value: object) -> str:
    if value is None or value in ("", ()):
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def allowed(key: config.Key) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices if choice)
    bounds = [
        f"≥ {key.low:g}" if key.low is not None else "",
        f"≤ {key.high:,.0f}" if key.high is not None else "",
    ]
    return ", ".join(filter(None, bounds)) or "–"


def state_machines() -> str:
    parts = [
        "# States",
        NOTE,
        "## A member of a classic group, in the consumer",
        (
            "The network thread's view, `kadence.consumer.group.classic_joining`. A member that is out of the "
            "group and polled joins; one that stops polling for `max.poll.interval.ms` becomes STALE."
        ),
        table(classic_joining.TRANSITIONS),
        "## A member of a KIP-848 group, in the consumer",
        (
            "The network thread's view, `kadence.consumer.group.member_states`, with Kafka's states. It is "
            "used with `group.protocol=consumer`, and with `auto` where the broker has it."
        ),
        table(member_states.TRANSITIONS),
        "## A classic group, in the coordinator",
        "The broker's view, `kadence.coordinator.classic.group`, with Kafka's five states.",
        table(group.NEXT, told=False),
        "## A transactional producer",
        (
            "`kadence.producer.transaction_states`. What raises in ABORTABLE is cured by `abort_transaction()`; a "
            "FAILED producer must be closed."
        ),
        table(transaction_states.TRANSITIONS),
    ]
    return "\n\n".join(parts) + "\n"


def command_line() -> str:
    """The commands as their own help describes them."""
    sys.path.insert(0, str(ROOT))
    from tests.cli.shapes import SHAPES

    fields = [
        f"| `{name}` | {shape.line} | {', '.join(f'`{each}`' for each in shape.fields)}"
        f"{'; also ' + ', '.join(f'`{each}`' for each in shape.sometimes) if shape.sometimes else ''} |"
        for name, shape in SHAPES.items()
    ]
    top = command_line_parser()
    parts = [
        "# The command line",
        NOTE,
        (
            "`kadence COMMAND --help` prints the same. Commands write data to stdout, and messages for people to "
            "stderr."
        ),
        fenced(top.epilog),
    ]
    shapes = [
        "## JSON",
        (
            "With `--json`, and in a pipe, commands print JSON lines. Their fields keep their names and meaning; "
            "new ones may be added, so read them by name. A field is `null` where there is nothing to tell; those "
            'behind "also" are left out then. Times are ISO 8601 in UTC, `timestamp` and what ends in `_ms` are '
            'milliseconds. Keys and values are texts, or `{"base64": …}` where they are not UTF-8. `broker`, `consume` '
            "and `produce --offsets` print JSON always; `doctor` and the actions of `pipeline` need `--json`."
        ),
        "\n".join(["| command | a line is | fields |", "|---|---|---|", *fields]),
    ]
    return "\n\n".join([*parts, *of_subcommands(top, "##"), *shapes]) + "\n"


def of_subcommands(parser: argparse.ArgumentParser, mark: str) -> list[str]:
    """A section for each command below this one, with those below it."""
    parts: list[str] = []
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        summaries = {each.dest: each.help for each in action._choices_actions}
        for name, command in action.choices.items():
            summary = str(summaries.get(name) or "")
            parts += [f"{mark} {command.prog}", f"{summary[:1].upper()}{summary[1:]}."]
            # Sub-commands without a text of their own share their parent's.
            if command.description and command.description.rstrip(".").lower() != summary.lower():
                parts.append(fenced(command.description))
            if rows := [argument_row(command, each) for each in command._actions if shows(each)]:
                parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
            parts += of_subcommands(command, f"{mark}#")
            if command.epilog:
                parts.append(fenced(command.epilog))
    return parts


def shows(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return not hidden and action.help != argparse.SUPPRESS


def argument_row(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = command._get_formatter()
    value = ""
    if action.nargs != 0:
        value = formatter._format_args(action, action.dest.upper())
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    names = ", ".join(action.option_strings)
    meaning = formatter._expand_help(action) if action.help else ""
    row = [f"`{' '.join(filter(None, [names, value]))}`", meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def fenced(text: str | None) -> str:
    """A text of the help as it stands. Four marks: no test takes it for what a snippet prints."""
    return f"````\n{(text or '').rstrip()}\n````"


S = TypeVar("S", bound=Enum)


def table(transitions: Mapping[S, frozenset[S]], *, told: bool = True) -> str:
    """Each state, what it means if its value says so, and what it can become; the first one is where it begins."""
    order = list(transitions)
    rows = ["| state | meaning | then |", "|---|---|---|"] if told else ["| state | then |", "|---|---|"]
    for state in order:
        after = [
            f"`{each.name}`" for each in sorted(transitions[state], key=order.index) if each is not state
        ]
        cells = [f"`{state.name}`", *([str(state.value)] if told else []), ", ".join(after) or "–"]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def spark_source() -> str:
    """docs/spark.md with its options, settings and columns."""
    options = [
        f"| `{name}` | {meaning} |"
        for name, meaning in option_names.OF_SOURCE.items()
        if name not in decode_options.OPTIONS
    ]
    decoding = [f"| `{name}` | {meaning} |" for name, meaning in decode_options.OPTIONS.items()]
    refused = [f"- `kafka.{name}`: {why}." for name, why in spark_options.CLIENT.refused.items()]
    left_out = ", ".join(f"`{name}`" for name in client_settings.ANY_TIME)
    columns = [f"| `{name}` | {kind} |" for name, kind in spark_schema.all_columns().items()]
    written = [f"| `{name}` | {' or '.join(kinds)} |" for name, kinds in sink_columns.COLUMNS.items()]
    sink = [f"| `{name}` | {meaning} |" for name, meaning in sink_options.OPTIONS.items()]
    sink_refused = [f"- `kafka.{name}`: {why}." for name, why in sink_options.REFUSED_CLIENT_KEYS.items()]
    delta, iceberg = (
        [f"| `{name}` | {meaning} |" for name, meaning in options.items()]
        for options in (lakehouse_options.DELTA_OPTIONS, lakehouse_options.ICEBERG_OPTIONS)
    )
    return drawn(
        "spark.md",
        {
            "options": "\n".join(["| option | meaning |", "|---|---|", *options]),
            "decoding": "\n".join(["| option | meaning |", "|---|---|", *decoding]),
            "refused": "\n".join(refused),
            "left out": left_out + ".",
            "columns": "\n".join(["| column | type |", "|---|---|", *columns]),
            "sink columns": "\n".join(["| column | type |", "|---|---|", *written]),
            "sink options": "\n".join(["| option | meaning |", "|---|---|", *sink]),
            "sink refused": "\n".join(sink_refused),
            "delta options": "\n".join(["| option | meaning |", "|---|---|", *delta]),
            "iceberg options": "\n".join(["| option | meaning |", "|---|---|", *iceberg]),
        },
    )


def pipelines() -> str:
    """docs/pipelines.md with the keys of a pipeline's file."""
    tables: dict[type, str] = {pipeline_model.Pipeline: "–"}
    for name, (_, kind) in pipeline_model.keys(pipeline_model.Pipeline).items():
        if kind.of is not None:
            header = f"`[[{name}]]`" if kind.shape == "tables" else f"`[{name}]`"
            # Sink and dead letters have the same keys.
            tables[kind.of] = f"{tables[kind.of]}, {header}" if kind.of in tables else header
    rows = ["| table | key | allowed | default | meaning |", "|---|---|---|---|---|"]
    for of, table in tables.items():
        for name, (each, kind) in pipeline_model.keys(of).items():
            if kind.of is not None or (of is pipeline_model.SourceStep and name == "options"):
                continue
            can_be = ", ".join(f"`{choice}`" for choice in kind.choices) or kind.allowed
            if kind.shape != "text":
                can_be = {"texts": "a list of texts", "boolean": "`true`, `false`"}.get(
                    kind.shape, "any keys"
                )
            default = (
                "needed"
                if pipeline_model.required(each)
                else shown(None if each.default is MISSING else each.default)
            )
            if (of, name) == (pipeline_model.Pipeline, "name"):
                default = "the file's name"
            rows.append(f"| {table} | `{name}` | {can_be} | {default} | {kind.doc} |")
    return drawn("pipelines.md", {"pipeline keys": "\n".join(rows)})


def testing() -> str:
    """docs/testing.md with what each broker can, as the tests declare it."""
    sys.path.insert(0, str(ROOT))
    from tests.consumer import capabilities

    return drawn("testing.md", {"capabilities": capabilities.table()})


def reference(page: str) -> str:
    """A page of the reference with its names, for whoever reads it without the site."""
    return drawn(f"reference/{page}", {"names": names(DOCS / "reference" / page)})


def admin_reference() -> str:
    """docs/reference/admin.md: the two clients, and what their calls take and return."""
    values = [entry(f"kadence.{name}") for name in admin.__all__ if name != "Admin"]
    page = "reference/admin.md"
    return drawn(page, {"names": names(DOCS / page), "values": "\n\n".join(values)})


def metrics() -> str:
    """docs/metrics.md with every name that `Consumer.metrics` and `Producer.metrics` can have."""
    rows = ["| metric | of each | meaning |", "|---|---|---|"]
    parts: dict[str, list[str]] = {}
    for name in (*Consumer.metric_names(), *Producer.metric_names()):
        tags = ", ".join(tag for tag in name.tags if tag != "client-id") or "–"
        row = f"| `{name.name}` | {tags} | {name.description} |"
        parts.setdefault(name.group, list(rows)).append(row)
    tables = "\n\n".join(f"### {group}\n\n" + "\n".join(lines) for group, lines in parts.items())
    return drawn("metrics.md", {"metrics": tables})


NOT_SERVED: dict[str, Mapping[int, str]] = {
    "one process has no replicas to move": {
        34: "AlterReplicaLogDirs",
        45: "AlterPartitionReassignments",
        46: "ListPartitionReassignments",
    },
    "no controllers that vote": {
        55: "DescribeQuorum",
        57: "UpdateFeatures",
        64: "UnregisterBroker",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
    },
    "no delegation tokens": {
        38: "CreateDelegationToken",
        39: "RenewDelegationToken",
        40: "ExpireDelegationToken",
        41: "DescribeDelegationToken",
    },
    "no quotas": {48: "DescribeClientQuotas", 49: "AlterClientQuotas"},
    "users are given to `Broker(users=)`": {
        50: "DescribeUserScramCredentials",
        51: "AlterUserScramCredentials",
    },
    "no share groups (KIP-932)": {
        76: "ShareGroupHeartbeat",
        77: "ShareGroupDescribe",
        78: "ShareFetch",
        79: "ShareAcknowledge",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
        90: "DescribeShareGroupOffsets",
        91: "AlterShareGroupOffsets",
        92: "DeleteShareGroupOffsets",
    },
    "no streams groups (KIP-1071)": {88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe"},
}
"""What Apache Kafka 4.3.1 tells its clients of and the embedded broker does not, by the reason."""


def broker() -> str:
    """docs/broker.md with the APIs that are served and those that are not."""
    served = [
        f"| {key} | {api_name(key)} | {handler.versions[0]}-{handler.versions[1]} |"
        for key, handler in sorted(HANDLERS.items())
    ]
    refused = [
        f"| {', '.join(f'{name} ({key})' for key, name in apis.items())} | {why} |"
        for why, apis in NOT_SERVED.items()
    ]
    return drawn(
        "broker.md",
        {
            "served": "\n".join(["| key | API | versions |", "|---|---|---|", *served]),
            "not served": "\n".join(["| API (key) | why |", "|---|---|", *refused]),
        },
    )


def drawn(page: str, parts: Mapping[str, str]) -> str:
    """A page written by hand in which some parts, each between two comments, are drawn."""
    text = (DOCS / page).read_text()
    for part, content in parts.items():
        begin, end = f"<!-- {part}: written by tools/docs.py -->", f"<!-- end of {part} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"docs/{page} has no lines {begin!r} and {end!r}")
        text = f"{before}{begin}\n\n{content}\n\n{end}{after}"
    return text


PAGES: dict[str, Callable[[], str]] = {
    "broker.md": broker,
    "cli.md": command_line,
    "configuration.md": configuration,
    "metrics.md": metrics,
    **{
        f"reference/{page.name}": partial(reference, page.name)
        for page in sorted((DOCS / "reference").glob("*.md"))
    },
    "reference/admin.md": admin_reference,
    "pipeline.schema.json": schema_text,
    "pipelines.md": pipelines,
    "spark.md": spark_source,
    "states.md": state_machines,
    "testing.md": testing,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail when a page differs from the code")
    check = parser.parse_args().check
    stale = 0
    for name, write in PAGES.items():
        page = DOCS / name
        text = write()
        if page.exists() and page.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"docs/{name} differs from the code: run `make docs`", file=sys.stderr)
        else:
            page.write_text(text)
            print(f"wrote docs/{name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
