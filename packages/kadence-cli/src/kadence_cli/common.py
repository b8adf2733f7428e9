"""Shared parts of the commands: connection options, -X, JSON lines, tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, Final, Literal, NoReturn, get_args

from kadence.clock import wall_time
from kadence.environment import DEFAULT_SERVERS, REGISTRY, servers_of
from kadence.errors import ConfigError
from kadence.lazy_dataclasses import dataclass
from kadence.printable import printable, printable_json
from kadence_cli.clusters import clusters_file, names, settings_in, settings_of
from kadence_cli.paging import paged
from kadence_cli.tables import print_table, terminal_size

__all__ = [
    "ClientConfig",
    "CommandError",
    "Parser",
    "UsageError",
    "add_actions",
    "add_client_options",
    "add_cluster_option",
    "add_command",
    "add_row_options",
    "add_settings_option",
    "bytes_of",
    "client_config",
    "cluster_asked",
    "json_text",
    "keys_of_others",
    "moment",
    "nearest",
    "number_of",
    "print_deleted",
    "print_json",
    "print_rows",
    "print_table",
    "read_settings",
    "say",
    "settings_files",
    "shared_settings",
    "text_of",
    "whole_number_of",
]

ClientConfig = Literal["AdminConfig", "ConsumerConfig", "ProducerConfig", "ShareConsumerConfig"]

_CLIENTS: Final = get_args(ClientConfig)


class CommandError(Exception):
    """The command failed; the message is for the user."""


class UsageError(CommandError):
    """The command line is wrong: contradictory options, or an invalid value. Status 2."""


def say(message: str) -> None:
    """Lines for people, on stderr: stdout is for data."""
    print("\n".join(map(printable, message.split("\n"))), file=sys.stderr, flush=True)


# ---------------------------------------------------------------- options


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in at most 79 columns, or fewer in a narrower terminal."""

    def __init__(self, prog: str, **more: Any) -> None:
        more["width"] = min(79, terminal_size()[0] - 1)
        super().__init__(prog, **{"max_help_position": 26, **more})


class Parser(argparse.ArgumentParser):
    """A parser whose help fits the terminal, and whose errors are one sentence and a pointer to --help."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **more})

    def error(self, message: str) -> NoReturn:
        """Print the error, and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` shows what it takes.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As `argparse`, but the command's own parser reports unknown arguments, because it knows its options."""
        known, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("-"):
                name = word.partition("=")[0]
                self.error(f"there is no option {name!r}{self._instead_of(name.lstrip('-'))}")
            self.error(f"unexpected argument {word!r}")
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As `argparse`, with the nearest name for an unknown command or action."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = nearest(value, action.choices) or f"; there are {', '.join(action.choices)}"
            raise argparse.ArgumentError(None, f"there is no {action.dest} {value!r}{hint}")
        super()._check_value(action, value)

    def _instead_of(self, word: str) -> str:
        """A suggestion for an unknown option. Kafka's own tools have options for topics and actions."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                return f"; did you mean `{self.prog} {word}`?"
            if not action.option_strings and word in (action.dest, action.dest.removesuffix("s")):
                return f"; give the {word} alone: {self.prog} {word.upper()}"
        if word == "config":
            return f"; it stands before the command: {self.prog.partition(' ')[0]} --config FILE"
        return nearest(
            word, [name[2:] for name in self._option_string_actions if name.startswith("--")], "--"
        )


def nearest(given: str, names: Iterable[str], prefix: str = "") -> str:
    """The nearest name, or else the longest one that is a prefix of ``given``."""
    # Loaded for the first wrong name.
    import difflib

    near = difflib.get_close_matches(given, names, n=1)
    near = near or sorted((name for name in names if len(name) > 3 and given.startswith(name)), key=len)[-1:]
    return f"; did you mean {prefix + near[0]!r}?" if near else ""


def add_command(
    commands: Any, name: str, summary: str, *, description: str, examples: str = ""
) -> argparse.ArgumentParser:
    """One command or action, whose help ends with examples."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=description, epilog=f"examples:\n{examples}" if examples else None
    )
    return parser


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """The actions of a command; the command without any shows its help and has status 2."""

    def teach(arguments: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return 2

    parser.set_defaults(run=teach)
    return parser.add_subparsers(dest="action", metavar="ACTION", title="actions", prog=parser.prog)


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """-b, -c and -X."""
    parser.add_argument(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        help="brokers to connect to first (default: those of -c or --config, else $KADENCE_BOOTSTRAP_SERVERS, else "
        f"{DEFAULT_SERVERS})",
    )
    # Without a default here: otherwise it would override an option before the command.
    add_cluster_option(parser, default=argparse.SUPPRESS)
    add_settings_option(
        parser,
        "a client setting by Kafka's name, e.g. -X security.protocol=SSL; repeatable. Others on this machine may see "
        "it in the list of processes: put secrets into the file of -c or --config",
    )


def add_cluster_option(parser: argparse.ArgumentParser, default: str | None) -> None:
    """-c NAME, before or after the command."""
    action = parser.add_argument(
        "-c",
        "--cluster",
        metavar="NAME",
        default=default,
        help="a named cluster (docs/cluster.md; default: $KADENCE_CLUSTER); may stand before the command",
    )
    action.completer = _clusters  # type: ignore[attr-defined]


def _clusters(**asked: Any) -> list[str]:
    """Completions for -c; none if the file is wrong, because the command itself reports that."""
    try:
        return names(os.environ)
    except (ConfigError, OSError):
        return []


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """--json and --wide."""
    parser.add_argument("--json", action="store_true", help="print JSON lines, even on a terminal")
    parser.add_argument("--wide", action="store_true", help="print text with whole values, even in a pipe")


def add_settings_option(parser: argparse.ArgumentParser, text: str) -> None:
    """-X key=value."""
    parser.add_argument("-X", dest="settings", metavar="KEY=VALUE", action="append", default=[], help=text)


def read_settings(pairs: Iterable[str], option: str = "-X") -> dict[str, str]:
    """``key=value`` pairs as a mapping.

    Raises:
        UsageError: one of them is not a pair.
    """
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            # The text may be a secret whose "=" was mistyped, so the error does not show it.
            raise UsageError(f"{option} takes KEY=VALUE; what was given is not of this form")
        settings[key.strip()] = value.strip()
    return settings


def client_config(
    arguments: argparse.Namespace, client: ClientConfig = "AdminConfig", *, with_registry: bool = False
) -> dict[str, Any]:
    """The configuration of one client, from the cluster file, --config, -b and -X; later ones take precedence.

    Args:
        client: its class of settings. A file serves all clients, so settings of others are left out.
        with_registry: whether to include the settings of a schema registry.

    Raises:
        ConfigError: a file, or a name in it, is wrong. OSError: a file cannot be read. UsageError: -X is.
    """
    others = keys_of_others(client)
    settings: dict[str, Any] = {
        name: value
        for name, value in shared_settings(arguments).items()
        if name not in others and (with_registry or not name.startswith(REGISTRY))
    }
    if arguments.bootstrap_servers:
        settings["bootstrap.servers"] = arguments.bootstrap_servers
    settings.setdefault("bootstrap.servers", servers_of(os.environ))
    return {**settings, **read_settings(arguments.settings)}


def keys_of_others(client: ClientConfig) -> set[str]:
    """Settings that only other clients have."""
    from kadence import config

    of = {each: {key.name for key in config.keys(getattr(config, each))} for each in _CLIENTS}
    return set().union(*of.values()) - of[client]


def shared_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings in the files of -c and --config."""
    cluster = _cluster(arguments)
    shared = {} if cluster is None else settings_of(cluster, os.environ)
    file = arguments.client_settings
    return {**shared, **({} if file is None else settings_in(file, os.environ))}


def _cluster(arguments: argparse.Namespace) -> str | None:
    # An empty name, as from a variable that is not set, is an error; it does not mean the default cluster.
    given: str | None = arguments.cluster
    return (os.environ.get("KADENCE_CLUSTER") or None) if given is None else given


def cluster_asked(arguments: argparse.Namespace, servers: str) -> str:
    """The name of the cluster at these addresses, as in ``cluster 'prod'``.

    Empty if no cluster is named, or if -b, --config or -X have other addresses than the cluster file.
    """
    name = _cluster(arguments)
    if name is None or settings_of(name, os.environ)["bootstrap.servers"] != servers:
        return ""
    return f"cluster {name!r}{'' if arguments.cluster else ' ($KADENCE_CLUSTER)'}"


def settings_files(arguments: argparse.Namespace) -> list[str]:
    """The files that -c and --config take settings from."""
    named = getattr(arguments, "cluster", None) or os.environ.get("KADENCE_CLUSTER")
    file = getattr(arguments, "client_settings", None)
    return [*([str(clusters_file(os.environ))] if named else []), *([file] if file else [])]


# ---------------------------------------------------------------- data


def text_of(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: a string if they are UTF-8, else ``{"base64": …}``, so that no byte is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: Any) -> bytes | None:
    """The reverse of `text_of`; any other JSON value becomes its compact text.

    Raises:
        ValueError: the text of ``base64`` is not base64.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        import base64

        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError) as error:
            raise ValueError(f"not base64: {value['base64']!r}") from error
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except TypeError:
        # As written: a float would change some of its numbers.
        text = _as_written(value)
    return text.encode()


_MOST_DIGITS: Final = 400
"""Of a whole number that is read as one: `int` has a limit of at least 640, which the user may set."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of a JSON document that keeps its text, because Python's number has another, e.g. 0.10, 1e999 or -0."""

    text: str


def number_of(text: str) -> Any:
    """A number with a point or an exponent, for `json.loads` (parse_float); `bytes_of` writes its text unchanged."""
    number = float(text)
    return number if repr(number) == text else _Number(text)


def whole_number_of(text: str) -> Any:
    """A number without them (parse_int). Python reads -0 as 0, and refuses one of thousands of digits."""
    return _Number(text) if text == "-0" or len(text) > _MOST_DIGITS else int(text)


def _as_written(value: Any) -> str:
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{_as_written(name)}:{_as_written(each)}" for name, each in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_as_written, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def json_text(document: Any) -> str:
    """One line of JSON, in which control characters are escaped: it may go to a terminal.

    Raises:
        ValueError: it contains NaN or an infinity, which JSON does not have. RecursionError: it is nested too deeply.
    """
    return printable_json(json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def print_json(document: Mapping[str, Any], stream: IO[str] | None = None) -> None:
    """One JSON line."""
    print(json_text(document), file=stream or sys.stdout)


def moment(ms: int | None, timespec: str = "seconds") -> str | None:
    """Ms since 1970 as a UTC time in ISO 8601. A number outside the calendar, from another program, stays a number."""
    try:
        return None if ms is None else wall_time(ms).isoformat(timespec=timespec)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


# ---------------------------------------------------------------- for people


def _is_for_people(wide: bool) -> bool:
    return wide or sys.stdout.isatty()


def print_deleted(kind: str, names: Iterable[str], arguments: argparse.Namespace) -> None:
    """Print what was deleted: a JSON line for each, or a message if stdout is a terminal, or with --wide."""
    for name in names:
        if arguments.json or not _is_for_people(arguments.wide):
            print_json({kind: name})
        else:
            say(f"{name} deleted")


def print_rows(
    rows: Sequence[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] = (), wide: bool = False
) -> None:
    """Print rows as JSON lines; as a table if stdout is a terminal, or with ``wide``, which shows whole values."""
    if as_json or not _is_for_people(wide):
        for row in rows:
            print_json(row)
        return
    with paged(sys.stdout) as out:
        print_table(rows, columns or (list(rows[0]) if rows else ()), out, wide=wide)
