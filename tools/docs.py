"""Writes the pages of docs/ that are drawn from the code, so that they cannot say anything else.

python tools/docs.py           writes docs/configuration.md, docs/cli.md and docs/states.md, and drawn parts of others
python tools/docs.py --check   writes nothing; fails when something would change
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from kadence import Consumer, MetricName, Producer, ShareConsumer, admin, config
from kadence.config.table import INT32_MAX
from kadence.consumer.group import classic_joining, member_states
from kadence.environment import REGISTRY
from kadence.producer import transaction_states
from kadence_broker.settings import Settings
from kadence_cli.main import make_parser as command_line_parser
from kadence_cli.where import FORMS
from kadence_spark import option_names
from kadence_spark.decode import options as decode_options
from kadence_spark.lakehouse import options as lakehouse_options
from kadence_spark.pipeline import model as pipeline_model
from kadence_spark.pipeline.schema import schema_text
from kadence_spark.sink import columns as sink_columns
from kadence_spark.sink import options as sink_options
from kadence_spark.source import schema as spark_schema
from layout import ROOT, add_tests_to_path
from reference_text import entry, names

DOCS = ROOT / "docs"
NOTE = "<!-- Written by tools/docs.py; change the table in the code instead. -->"


def configuration() -> str:
    """The reference of all keys: those that every client has once, then what each client adds."""
    common = {key.name for key in config.keys(config.ClientConfig)}
    parts = [
        "# Configuration",
        NOTE,
        (
            "Give settings in a dictionary, as keywords in snake_case, or both: "
            '`Consumer({"group.id": "g"}, max_poll_records=100)`. An unknown key raises '
            "`ConfigError`."
        ),
        "## Every client",
        key_table(config.keys(config.ClientConfig)),
    ]
    explained: list[config.Key] = []
    for title, table in (
        ("Consumer", config.ConsumerConfig),
        ("Share consumer", config.ShareConsumerConfig),
        ("Producer", config.ProducerConfig),
        ("Admin", config.AdminConfig),
    ):
        own = [key for key in config.keys(table) if key.name not in common]
        parts.append(f"## {title}")
        if again := [f"`{key.name}`" for key in own if key in explained]:
            parts.append(f"As for the consumer: {', '.join(again)}.")
        if left := [key for key in own if key not in explained]:
            parts.append(key_table(left))
        explained += own
    broker = [f"{each.metadata['name']}={plain(each.default)}" for each in fields(Settings)]
    parts += [
        "## Embedded broker",
        (
            "The embedded broker accepts these settings of Kafka's brokers; the values are its defaults. Set them with "
            "`Broker(config={...})` or `kadence broker -X KEY=VALUE`."
        ),
        "\n".join(("```properties", *broker, "```")),
    ]
    return "\n\n".join(parts) + "\n"


def key_table(rows: Sequence[config.Key]) -> str:
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for key in rows:
        origin = f" ({key.since})" if key.since else ""
        cells = [f"`{key.name}`", shown(key.default), allowed(key), f"{key.doc}{origin}"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def shown(value: object) -> str:
    if value is None or value in ("", ()):
        return "–"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def plain(value: object) -> str:
    """A default as a file of Kafka's settings has it."""
    return shown(value).replace("`", "").replace(", ", ",").replace("–", "")


def number(bound: float) -> str:
    return f"{bound:,.0f}" if float(bound).is_integer() else f"{bound:g}"


def allowed(key: config.Key) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" if choice else "empty" for choice in key.choices)
    has_bounds = key.low is not None or key.high not in (None, INT32_MAX)
    bounds = [
        "" if key.kind in ("int", "count") and has_bounds else key.kind,
        "≥ 1, -1, `auto`" if key.kind == "count" else f"≥ {number(key.low)}" if key.low is not None else "",
        f"≤ {number(key.high)}" if key.high not in (None, INT32_MAX) else "",
    ]
    return ", ".join(filter(None, bounds))


def state_machines() -> str:
    parts = [
        "# States",
        NOTE,
        (
            "A member joins at the application's first poll. It becomes `STALE` if no poll comes for "
            "`max.poll.interval.ms` (in a classic group `session.timeout.ms`, if longer). The next poll joins again."
        ),
        "## A member of a classic group, in the consumer",
        "`kadence.consumer.group.classic_joining`:",
        table(classic_joining.TRANSITIONS),
        "## A member of a KIP-848 group, in the consumer",
        "`kadence.consumer.group.member_states`. The names are Kafka's. Share consumers have the same states.",
        table(member_states.TRANSITIONS),
        "## A transactional producer",
        (
            "`kadence.producer.transaction_states`. In Spark a task's producer leaves its transaction open for the "
            "driver to commit, and becomes `UNINITIALIZED` again."
        ),
        table(transaction_states.TRANSITIONS),
    ]
    return "\n\n".join(parts) + "\n"


def command_line() -> str:
    """The commands as their own help describes them."""
    add_tests_to_path()
    from tests.cli.shapes import SHAPES

    alike: dict[str, list[str]] = {}
    for name, shape in SHAPES.items():
        # "a topic" and the like: the fields say so.
        line = f"{shape.line}; " if len(shape.line.split()) > 3 else ""
        text = f"{line}{', '.join(f'`{each}`' for each in shape.fields)}"
        if shape.sometimes:
            text += f"; also {', '.join(f'`{each}`' for each in shape.sometimes)}"
        alike.setdefault(text, []).append(f"`{name}`")
    fields = [f"- {', '.join(names)}: {text}" for text, names in alike.items()]
    top = command_line_parser()
    common = common_options(top)
    shared: dict[str, list[str]] = {}
    for text, commands in common.items():
        shared.setdefault(briefly(commands, top), []).append(text)
    parts = [
        "# The command line",
        NOTE,
        (
            "`pip install 'kadence[cli]'` installs the command `kadence`. `kadence COMMAND --help` prints its part of "
            "this page. See also the [first session](tutorial.md#the-command-line) and "
            "[names for clusters](cluster.md#see-whether-it-answers). "
            "Commands write data to stdout, and messages for people to stderr."
        ),
        (top.epilog or "").rpartition("\n\n")[2].strip(),
        "Options before the command:",
        "\n".join(
            f"- {text}"
            for each in top._actions
            if shows(each)
            if (text := argument_text(top, each)) not in common
        ),
        "## Options of many commands",
        "\n\n".join(
            f"{commands}:\n\n" + "\n".join(f"- {text}" for text in texts)
            for commands, texts in shared.items()
        ),
        "## Places",
        "WHERE, as in `--from WHERE`, is one of:",
        fenced(FORMS.partition("\n")[2]),
    ]
    shapes = [
        "## JSON",
        (
            "With `--json`, and in a pipe without `--wide`, the commands below print JSON lines. `doctor`, "
            "`pipeline check` and `pipeline plan` do so only with `--json`; `broker`, `consume` (without "
            "`--format values`) and `produce --offsets` always do. New fields may be "
            "added. A field without a value is `null`; those "
            'after "also" are left out instead. '
            "Times are ISO 8601 in UTC; `timestamp` and names that end in `_ms` are milliseconds. Keys and "
            'values are texts, or `{"base64": …}` if they are not UTF-8; `consume --value` shows values as JSON, '
            "`--format json` those that are JSON."
        ),
        "The fields of a line, for some commands after its meaning:",
        "\n".join(fields),
    ]
    return "\n\n".join([*parts, *of_subcommands(top, "##", set(common), common), *shapes]) + "\n"


def common_options(top: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The options that several commands have in the same words: each text, and the commands that have it."""
    found: dict[str, list[str]] = {}
    for command in commands_below(top):
        for action in command._actions:
            if shows(action) and action.option_strings:
                name = command.prog.removeprefix(f"{top.prog} ")
                found.setdefault(argument_text(command, action), []).append(name)
    return {text: names for text, names in found.items() if len({name.split()[0] for name in names}) > 2}


def briefly(names: list[str], top: argparse.ArgumentParser) -> str:
    """Names of commands; one stands for all of its actions if each of them is meant."""
    every = [command.prog.removeprefix(f"{top.prog} ") for command in commands_below(top)]
    said: list[str] = []
    for first in dict.fromkeys(name.split()[0] for name in names):
        own = [name for name in names if name.split()[0] == first]
        below = [name for name in every if name.startswith(f"{first} ")]
        said += [first] if own == below else own
    return ", ".join(f"`{each}`" for each in said)


def commands_below(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Every command and action below this one."""
    found: list[argparse.ArgumentParser] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += [command, *commands_below(command)]
    return found


def of_subcommands(
    parser: argparse.ArgumentParser, mark: str, explained: set[str], common: Collection[str]
) -> list[str]:
    """A section for each command below this one, with those below it.

    Args:
        explained: the arguments that the page has explained so far; this adds those that it explains. Their names alone
            are repeated.
    """
    parts: list[str] = []
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        summaries = {each.dest: each.help for each in action._choices_actions}
        for name, command in action.choices.items():
            summary = str(summaries.get(name) or "")
            parts.append(f"{mark} {command.prog}")
            first = f"{summary[:1].upper()}{summary[1:]}."
            about = (command.description or first).replace(FORMS, "").strip()
            # An action's text begins with its summary; that of a command stands for it.
            if about.startswith(first):
                parts.append(first)
                about = about.removeprefix(first).strip()
            if about:
                parts.append(prose(about))
            texts = [argument_text(command, each) for each in command._actions if shows(each)]
            # A plain name, such as FILE, stands in the command's examples.
            texts = [text for text in texts if not re.match(r"`\[?[A-Z]+\]?(?: \.\.\.)?`:", text)]
            own = [f"- {text}" for text in texts if text not in explained]
            again = [text.partition(": ")[0] for text in texts if text in explained and text not in common]
            # What a command is given stands in its examples.
            if again := [text for text in again if text.startswith("`-")]:
                own.append(f"- {', '.join(again)}: as above")
            if own:
                parts.append("\n".join(own))
            explained.update(texts)
            parts += of_subcommands(command, f"{mark}#", explained, common)
            if command.epilog:
                parts.append(fenced(command.epilog))
    return parts


def shows(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return not hidden and action.help != argparse.SUPPRESS


def argument_text(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    """One argument as a line: its names and values, and what it means."""
    formatter = command._get_formatter()
    value = ""
    if action.nargs != 0:
        value = formatter._format_args(action, action.dest.upper())
    if action.nargs == "+" and action.metavar is not None:
        value = f"{action.metavar} ..."
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    names = ", ".join(action.option_strings)
    meaning = formatter._expand_help(action) if action.help else ""
    needed = " (required)" if action.option_strings and action.required else ""
    return f"`{' '.join(filter(None, [names, value]))}`{needed}: {meaning}"


def prose(text: str) -> str:
    """A text of the help: as a paragraph unless its lines are laid out."""
    lines = text.splitlines()
    return fenced(text) if any(not line or line.startswith(" ") for line in lines) else " ".join(lines)


def fenced(text: str | None) -> str:
    """A text of the help as it stands. Four marks: no test takes it for what a snippet prints."""
    return f"````\n{(text or '').rstrip()}\n````"


S = TypeVar("S", bound=Enum)


def table(transitions: Mapping[S, frozenset[S]]) -> str:
    """Each state, what it means, and what it can become; the first one is where it begins."""
    order = list(transitions)
    rows = ["| state | meaning | next states |", "|---|---|---|"]
    for state in order:
        after = [
            f"`{each.name}`" for each in sorted(transitions[state], key=order.index) if each is not state
        ]
        cells = [f"`{state.name}`", str(state.value), ", ".join(after) or "–"]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def spark_source() -> str:
    """docs/spark.md with its options, settings and columns."""
    options = {
        name: meaning
        for name, meaning in option_names.OF_SOURCE.items()
        if name not in decode_options.OPTIONS
    }
    decoding: dict[str, str] = {}
    for name, meaning in decode_options.OPTIONS.items():
        of_keys = name.replace("value.", "key.", 1)
        if name.startswith(("allow", REGISTRY)):
            continue  # one line for all of them
        if meaning != OF_KEYS:
            both = decode_options.OPTIONS.get(of_keys) == OF_KEYS
            decoding[f"{name}`, `{of_keys}" if both else name] = meaning
    of_registry = [name for name in decode_options.OPTIONS if name.startswith(REGISTRY)]
    decoding["`, `".join(of_registry)] = "as for [a client of the registry](schemas.md#the-client)."
    of_from_json = [name for name in decode_options.OPTIONS if name.startswith("allow")]
    decoding["`, `".join(of_from_json)] = "json: as options of from_json, with its defaults."
    tables = {**lakehouse_options.DELTA_OPTIONS, **lakehouse_options.ICEBERG_OPTIONS}
    columns = [f"`{name} {kind}`" for name, kind in spark_schema.all_columns().items()]
    written = [
        f"`{name}` ({' or '.join(f'`{kind}`' for kind in kinds)})"
        for name, kinds in sink_columns.COLUMNS.items()
    ]
    return drawn(
        "spark.md",
        {
            "options": option_list(options),
            "decoding": option_list(decoding),
            "columns": ", ".join(columns) + ".",
            "sink columns": ", ".join(written) + ".",
            "sink options": option_list(sink_options.OPTIONS),
            "lakehouse options": "\n".join(
                f"- `{name}`{only_of(name)}: {meaning}" for name, meaning in tables.items()
            ),
        },
    )


def option_list(options: Mapping[str, str]) -> str:
    return "\n".join(f"- `{name}`: {meaning}" for name, meaning in options.items())


OF_KEYS = "The same for keys."
"""The meaning of an option of decoding that stands in the row of the option for values."""


def only_of(option: str) -> str:
    """The one kind of table that has an option."""
    if option not in lakehouse_options.ICEBERG_OPTIONS:
        return " (Delta)"
    return "" if option in lakehouse_options.DELTA_OPTIONS else " (Iceberg)"


NAMES = (pipeline_model.NAME, pipeline_model.VIEW)
"""What the name of something must match. Errors say it."""


def pipelines() -> str:
    """docs/pipelines.md with the keys of a pipeline's file."""
    tables: dict[type, str] = {pipeline_model.Pipeline: "–"}
    for name, (_, kind) in pipeline_model.keys(pipeline_model.Pipeline).items():
        if kind.of is not None:
            header = f"`[[{name}]]`" if kind.shape == "tables" else f"`[{name}]`"
            # Sink and dead letters have the same keys.
            tables[kind.of] = f"{tables[kind.of]}, {header}" if kind.of in tables else header
    rows: list[str] = []
    for of, table in tables.items():
        rows.append(f"\n{'At the top' if of is pipeline_model.Pipeline else table}:\n")
        for name, (each, kind) in pipeline_model.keys(of).items():
            if kind.of is not None or (of is pipeline_model.SourceStep and name == "options"):
                continue
            notes = []
            if (of, name) == (pipeline_model.Pipeline, "name"):
                notes.append("default: the file's name without its ending")
            elif pipeline_model.required(each):
                notes.append("required")
            elif each.default not in (MISSING, None, ()):
                notes.append(f"default: {shown(each.default)}")
            if kind.choices:
                notes.append(", ".join(f"`{choice}`" for choice in kind.choices))
            elif kind.shape == "text" and kind.allowed != "a text" and kind.pattern not in NAMES:
                notes.append(kind.allowed)
            elif kind.shape != "text":
                notes.append({"texts": "a list", "boolean": "`true`, `false`"}.get(kind.shape, "any keys"))
            note = f" ({'; '.join(notes)})" if notes else ""
            rows.append(f"- `{name}`{note}: {kind.doc}")
    return drawn("pipelines.md", {"pipeline keys": "\n".join(rows).strip()})


def reference(page: str) -> str:
    """A page of the reference with its names, for whoever reads it without the site."""
    return drawn(f"reference/{page}", {"names": names(DOCS / "reference" / page)})


def admin_reference() -> str:
    """docs/reference/admin.md: the two clients, and what their calls take and return."""
    values = [entry(f"kadence.{name}") for name in admin.__all__ if name != "Admin"]
    page = "reference/admin.md"
    return drawn(page, {"names": names(DOCS / page), "values": "\n\n".join(values)})


def metrics() -> str:
    """docs/metrics.md with every name that the metrics of consumers, share consumers and producers can have.

    A measurement that has several statistics has one row. Rows that both clients have stand in a table of their own.
    What a table before explains for the whole client is only named in the tables for each topic and each broker.
    """
    measured: dict[tuple[str, str, str], list[MetricName]] = {}
    for name in (*Consumer.metric_names(), *ShareConsumer.metric_names(), *Producer.metric_names()):
        tags = " and ".join(tag for tag in name.tags if tag != "client-id")
        measured.setdefault((name.group, tags, _measured(name.name)), []).append(name)
    rows = [(of, tags, _metric_row(alike)) for (of, tags, _), alike in measured.items()]
    parts: dict[str, list[str]] = {}
    for of, tags, row in rows:
        twin = of.replace("consumer-", "producer-")
        if of.startswith("producer-") and (of.replace("producer-", "consumer-"), tags, row) in rows:
            continue
        title = f"{of} and {twin}" if twin != of and (twin, tags, row) in rows else of
        parts.setdefault(title + (f", for each {tags}" if tags else ""), []).append(row)
    tables: list[str] = []
    explained: set[str] = set()
    for title, part in parts.items():
        tables.append(_metric_section(title, part, explained, parts))
        explained.update(part)
        if ", for each " not in title:
            explained.update(_measured(row.split("`")[1]) for row in part)
    return drawn("metrics.md", {"metrics": "\n\n".join(tables)})


def _metric_section(
    title: str, rows: Sequence[str], explained: Collection[str], sections: Mapping[str, Sequence[str]]
) -> str:
    """A table under its title.

    In those of topics, brokers and share consumers a line has the names that a table before explains. A line at the end
    has those that need no explanation.
    """
    is_brief = title.endswith((", for each topic", ", for each node-id"))
    known = [
        row
        for row in rows
        if (is_brief and _measured(row.split("`")[1]) in explained)
        or ("share-" in title and row in explained)
    ]
    parts = [f"### {title}"]
    if known:
        parts.append(f"As above: {'; '.join(_named_briefly(known, title, sections))}.")
    plain = [row for row in rows if row not in known and PLAIN.match(row)]
    left = [row for row in rows if row not in known and row not in plain]
    if len(left) == 1:
        parts.append(left[0].strip("| ").replace(" | ", ": "))
    elif left:
        parts.append("\n".join(("| metric | meaning |", "|---|---|", *left)))
    if plain:
        parts.append(f"Named as in Java's client: {'; '.join(map(_names_of_row, plain))}.")
    return "\n\n".join(parts)


def _named_briefly(known: Sequence[str], title: str, sections: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of these metrics; those of most of a section before are named by it."""
    left = list(known)
    texts: list[str] = []
    for name, rows in sections.items():
        if name == title:
            break
        missing = [row for row in rows if row not in left]
        if len(rows) - len(missing) > 3 * max(len(missing), 1):
            but = f" but {', '.join(map(_names_of_row, missing))}" if missing else ""
            anchor = name.replace(",", "").replace(" ", "-")
            texts.append(f"all of [{name}](#{anchor}){but}")
            left = [row for row in left if row not in rows]
    whole_client = [row for name, rows in sections.items() if ", for each " not in name for row in rows]
    for start in {row.partition("-")[0] + "-" for row in left}:
        alike = [row for row in left if row.startswith(start)]
        if len(alike) > 5 and all(row in alike for row in whole_client if row.startswith(start)):
            left = [f"{start}*`" if row == alike[0] else row for row in left if row not in alike[1:]]
    return texts + [_names_of_row(row) for row in left]


PLAIN: Final = re.compile(
    r"\| `(?:time-between-network-thread|unsent-requests|\w+-event-|network-io|select|io-|connection|\w+-byte-"
    r"|request-(?:rate|size)|response|(?:\w+-)?(?:re)?authentication|join|sync|partition-\w+-latency|txn|flush"
    r"|commit-sync|committed|commit-rate|heartbeat-r|fetch-(?:rate|throttle)|produce-throttle|rebalance-rate)"
)
"""Rows of Java's metrics whose names say enough: the page only names them. `MetricName.description` has the rest."""


def _names_of_row(row: str) -> str:
    return row.split(" | ", maxsplit=1)[0].removeprefix("| ")


def _metric_row(alike: Sequence[MetricName]) -> str:
    """The names of metrics that differ in their statistic, and what they measure."""
    first, *others = (name.name for name in alike)
    also = "".join(f", `{other.removeprefix(_measured(other))}`" for other in others)
    return f"| `{first}`{also} | {_meaning(alike)} |"


STATISTICS: Final = re.compile(r"-(?:rate-per-hour|rate|total|avg|max|min)$")


def _measured(name: str) -> str:
    """The name of a metric without its statistic."""
    return STATISTICS.sub("", name)


def _meaning(names: Sequence[MetricName]) -> str:
    """What metrics that differ in their statistic measure."""
    if len(names) == 1:
        return names[0].description
    named = {name.name.rpartition("-")[2]: name.description for name in names}
    bare = next((name.description for name in names if name.name == _measured(name.name)), None)
    text = bare or named.get("avg") or named["total"]
    if " in one turn " in text:
        text = f"{named['total']}; the average is that of one turn"
    for begin in ("The average ", "The number of "):
        text = text.removeprefix(begin)
    return text if "_" in text.split()[0] else text[0].upper() + text[1:]


NOT_SERVED: dict[str, Mapping[int, str]] = {
    "one process has no replicas to move": {
        34: "AlterReplicaLogDirs",
        45: "AlterPartitionReassignments",
    },
    "no controllers that vote": {
        55: "DescribeQuorum",
        57: "UpdateFeatures",
        64: "UnregisterBroker",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
        94: "UnregisterController",
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
    "coordinators and leaders of share groups are in one process": {
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
    },
    "no streams groups (KIP-1071)": {
        88: "StreamsGroupHeartbeat",
        89: "StreamsGroupDescribe",
        93: "StreamsGroupTopologyDescriptionUpdate",
    },
}
"""What Apache Kafka 4.4.0 tells its clients of and the embedded broker does not, by the reason."""


def broker() -> str:
    """docs/broker.md with the APIs that are not served."""
    refused = [f"- {why}: {', '.join(apis.values())}" for why, apis in NOT_SERVED.items()]
    return drawn("broker.md", {"not served": "\n".join(refused)})


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
