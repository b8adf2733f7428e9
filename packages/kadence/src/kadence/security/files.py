"""Files with secrets or settings: who else may read or change them."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from kadence.logs import logger

__all__ = ["warn_if_changeable", "warn_if_open"]

_log = logger("kadence.security")


@lru_cache
def warn_if_changeable(path: str | os.PathLike[str], what: str) -> None:
    """Warn, once for each file, where every user of this machine may write to it, and so choose ``what``."""
    if _has(path, stat.S_IWOTH):
        _log.warning("every user of this machine can change %s, which says %s: chmod o-w", str(path), what)


@lru_cache
def warn_if_open(path: str | os.PathLike[str], what: str) -> None:
    """Warn, once for each file, where every user of this machine may read it.

    Args:
        what: it holds, such as "a private key".
    """
    if _has(path, stat.S_IROTH):
        _log.warning("every user of this machine can read %s, which holds %s: chmod o-r", str(path), what)


def _has(path: str | os.PathLike[str], right: int) -> bool:
    """True if a file's mode has a right."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        # The reader of the file reports that.
        return False
    # Windows has other rights, of which the mode says nothing.
    return os.name == "posix" and stat.S_ISREG(mode) and bool(mode & right)
