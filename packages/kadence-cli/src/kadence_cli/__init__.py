"""The command line: ``kadence broker | produce | consume | topics | groups | …``, one file per command.

Every command is usable in a pipe: data, as JSON lines, on stdout; messages for people on stderr; status 0 on success,
1 on failure, 2 for a wrong command line, 130 after Ctrl-C, 141 when the reader of the output has closed the pipe. No
other package imports this one.
"""

from kadence_cli.main import main

__all__ = ["main"]
