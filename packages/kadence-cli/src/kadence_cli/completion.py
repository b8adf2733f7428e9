"""``kadence completion``: the script for shells that completes commands, options and names."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from kadence.errors import MissingDependencyError
from kadence_cli.common import add_command

__all__ = ["add", "run"]

_SHELLS: Final = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Print a script that completes commands, options, files, and names of clusters,
topics, groups and transactions. For names it asks brokers, for 0.7 s at most."""

_EXAMPLES = """\
  kadence completion bash >> ~/.bashrc
  kadence completion zsh >> ~/.zshrc          after the line with compinit
  kadence completion fish > ~/.config/fish/completions/kadence.fish"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence completion``."""
    parser = add_command(
        commands,
        "completion",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status.

    Raises:
        MissingDependencyError: argcomplete is not installed.
    """
    try:
        from argcomplete.shell_integration import shellcode
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "kadence completion needs argcomplete: pip install 'kadence[cli]'"
        ) from None
    sys.stdout.write(shellcode(["kadence"], shell=arguments.shell))
    return 0
