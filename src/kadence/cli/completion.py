"""``kadence completion``: the script for shells that completes commands, options and names."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from kadence.cli.common import add_command
from kadence.errors import MissingDependencyError

__all__ = ["add", "run"]

_SHELLS: Final = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Print a script for a shell, which then completes commands, options, files, the
names of clusters, and the names of topics, groups and transactions as the
brokers have them: those of -c, -b or --config where it stands before on the
line. Brokers that do not answer at once (0.7 s) are not waited for. It needs
kadence[cli]."""

_EXAMPLES = """\
  kadence completion bash >> ~/.bashrc
  kadence completion zsh >> ~/.zshrc          after the line with compinit
  kadence completion fish > ~/.config/fish/completions/kadence.fish"""


def add(commands: Any) -> None:
    """The command line of ``kadence completion``."""
    parser = add_command(
        commands,
        "completion",
        "let a shell complete commands",
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
