"""The program that Spark starts in place of Python: it asks `kadence.spark.spawner` for a process that is ready.

    python -S -E launch.py ARGUMENTS...

The process gets this one's arguments, environment and standard streams. This one passes signals on to it and ends as it
ends, so Spark sees one process. Where there is no spawner, or it refuses, this one becomes the Python that Spark meant.

It imports nothing but what Python starts with, and a little of the standard library: that it is fast is its purpose.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from types import FrameType

__all__ = ["DIRECTORY", "NUMBER", "SOCKET", "main"]

DIRECTORY = "KADENCE_SPARK_SPAWNER"
"""The variable that names the spawner's directory."""

SOCKET = "socket"
"""The name of its socket there."""

NUMBER = struct.Struct("!i")
"""How lengths, process ids and exit statuses are written."""

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Be the process that Spark asked for."""
    arguments = sys.argv[1:]
    try:
        connection, process = _ask(os.environ[DIRECTORY], arguments)
    except (OSError, EOFError, KeyError):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - what Spark wanted to start

    def pass_on(number: int, frame: FrameType | None) -> None:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass  # its end is about to be told

    for each in _PASSED_ON:
        signal.signal(each, pass_on)
    try:
        status = _number(connection)
    except (OSError, EOFError):  # the spawner was killed, and with it goes what it knew of the process
        os._exit(1)
    _end(os.waitstatus_to_exitcode(status))


def _ask(directory: str, arguments: list[str]) -> tuple[socket.socket, int]:
    """The connection on which the process's end will be told, and its id."""
    here = os.getcwd()  # noqa: PTH109 - importing pathlib takes longer than all the rest
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": here}
    data = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(f"{directory}/{SOCKET}")
    socket.send_fds(connection, [NUMBER.pack(len(data))], [0, 1, 2])
    connection.sendall(data)
    process = _number(connection)
    if process <= 0:
        raise EOFError
    return connection, process


def _number(connection: socket.socket) -> int:
    data = connection.recv(NUMBER.size, socket.MSG_WAITALL)
    if len(data) < NUMBER.size:
        raise EOFError
    number: int = NUMBER.unpack(data)[0]
    return number


def _end(code: int) -> None:
    if code < 0:
        if -code in _PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
