"""Directories that are this user's, and new files in them: what Kadence trusts later, or keeps from other users.

Another user of the machine may have made a directory first whose name he can guess, or may write to one of ours. What
he puts there would be run, read or written through (by a link), so such a directory is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Final

__all__ = ["DIRECTORY_MODE", "FILE_MODE", "check_own", "new_file", "own_directory"]

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def own_directory(path: Path) -> Path:
    """A directory that nobody else may write to; made if it is not there, and then nobody else may enter it.

    Raises:
        PermissionError: it belongs to another user, or others may write to it. OSError: it cannot be made.
    """
    path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    check_own(path)
    return path


def check_own(path: Path) -> None:
    """Raise `PermissionError` if a directory belongs to another user, or if others may write to it.

    Also if its name is a link that another user has made. Elsewhere than on POSIX, modes say nothing.
    """
    if os.name != "posix":
        return
    user = os.geteuid()
    link, about = path.lstat(), path.stat()
    if about.st_uid != user or link.st_uid not in (user, 0):
        owner = about.st_uid if about.st_uid != user else link.st_uid
        raise PermissionError(
            f"{path} belongs to another user of this machine (uid {owner}), who could change what is in it; name a "
            "directory of your own, or one that does not exist yet"
        )
    if about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and not _is_alone_in(about.st_gid)):
        raise PermissionError(
            f"other users of this machine may write to {path}; check that its files are yours, then run "
            "chmod go-w on it"
        )


def new_file(path: Path) -> IO[bytes]:
    """A file to write, which nobody else may read, and of which there is none: no link leads elsewhere.

    Raises:
        FileExistsError: there is something of this name. OSError: it cannot be made.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED_ON_EXEC, FILE_MODE), "wb")


_CLOSED_ON_EXEC: Final = getattr(os, "O_CLOEXEC", 0)


def _is_alone_in(group: int) -> bool:
    """Whether a group is this user's private one, as many systems give to each user: it has his name, and only him."""
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}
