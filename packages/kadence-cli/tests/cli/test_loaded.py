"""Which modules a command loads: those that it uses. Each other takes its time of every run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kadence import Producer
from kadence_broker import Broker
from kadence_cli.main import _COMMANDS, make_parser

SLOW_TO_LOAD = {
    "ast",
    "asyncio",
    "base64",
    "bz2",
    "csv",
    "ctypes",
    "dataclasses",
    "decimal",
    "difflib",
    "email",
    "inspect",
    "lzma",
    "pathlib",
    "platform",
    "shutil",
    "ssl",
    "subprocess",
    "tempfile",
    "tomllib",
    "urllib",
    "uuid",
    "zipfile",
}
"""Of the standard library: a list of topics needs none of them, nor does a consumer."""

MODULES = {name: f"kadence_cli.{module}" for name, (module, _) in _COMMANDS.items()}


def loaded(*words: str) -> set[str]:
    """The modules in the process of a command, at its end."""
    program = (
        "import sys\nfrom kadence_cli import main\n"
        "try: status = main(sys.argv[1:])\nexcept SystemExit as end: status = end.code\n"
        "print(*sys.modules, file=sys.stderr)\nsys.exit(status)"
    )
    ran = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize("command", MODULES)
def test_the_command_line_of_one_command_loads_no_other(command: str) -> None:
    modules = loaded(command, "--help")
    assert modules & {*MODULES.values()} == {MODULES[command]}
    assert "kadence.net" not in modules


def test_the_help_of_all_loads_no_command() -> None:
    modules = loaded("--help")
    assert not modules & {*MODULES.values()}
    assert not modules & (SLOW_TO_LOAD - {"shutil"})


def test_short_commands_load_nothing_that_is_slow_to_load() -> None:
    with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("flights", b"one").result(timeout=10)
        at = ("-b", broker.bootstrap_servers)
        listing = loaded("topics", "list", *at)
        reading = loaded("consume", "flights", "-n", "1", *at)

    assert listing & SLOW_TO_LOAD == reading & SLOW_TO_LOAD == set()
    assert "kadence.consumer.consumer" in reading
    assert not {name for name in listing if name.startswith(("kadence.consumer", "kadence.producer"))}


def test_the_summaries_of_the_help_are_those_of_the_commands() -> None:
    """A command that is not loaded is shown in the same words."""
    assert make_parser().format_help() == make_parser(()).format_help()
