"""The private directory of the sockets between Java and Spark's Python processes.

Over TCP Spark requires a secret of each client; on such a socket it does not, and runs the code that it receives. It
creates them in the directory for temporary files, where only the umask would keep out other users of the machine.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

__all__ = ["socket_settings"]

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
_DIRECTORY: Final = "spark.python.unix.domain.socket.dir"
_LONGEST_PATH: Final = 103
"""The longest socket path on macOS; Linux allows 107."""
_NAME_LENGTH: Final = len("/.6d9673b7-7b3e-4c75-9ff6-054b7fbb1b74.sock")


def socket_settings(master: str, conf: Mapping[str, Any]) -> dict[str, str]:
    """The settings with which a local session has private sockets; none for a cluster's executors.

    If no directory's path is short enough for a socket, Spark uses TCP.

    Args:
        master: Spark's. conf: the user's settings; a directory of sockets there takes precedence.
    """
    if os.name != "posix" or not master.startswith("local") or _DIRECTORY in conf or _ENABLED in conf:
        return {}
    directory = _directory(os.getpid())
    return {_ENABLED: "false"} if directory is None else {_DIRECTORY: directory}


@functools.lru_cache(1)
def _directory(process: int) -> str | None:
    """The directory of all sessions of this process, deleted at its end. None: its path would be too long."""
    for place in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - the directory in it is made for this user alone
        with suppress(OSError):
            made = tempfile.mkdtemp(prefix="kadence-spark-", dir=place)
            if len(os.fsencode(made)) + _NAME_LENGTH <= _LONGEST_PATH:
                atexit.register(_remove, made, process)
                return made
            Path(made).rmdir()
    return None


def _remove(directory: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)
