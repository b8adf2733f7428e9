"""The command line: ``kadence broker | produce | consume | topics | groups | …``, one file per command.

Every command is usable in a pipe: data, as JSON lines, on stdout; everything said to people on stderr; status 0
when all went well, 1 when it did not, 2 for a wrong command line, 130 after Ctrl-C, 141 when the reader of our
output went away. Nothing imports this room.
"""

from kadence.cli.main import main

__all__ = ["main"]
