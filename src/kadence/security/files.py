"""Files with secrets: who else may read them."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from kadence.logs import logger

__all__ = ["warn_if_open"]

_log = logger("kadence.security")


@lru_cache
def warn_if_open(path: str | os.PathLike[str], what: str) -> None:
    """Warn, once for each file, where every user of this machine may read it.

    Args:
        what: it holds, such as "a private key".
    """
    try:
        about = Path(path).stat()
    except OSError:
        # Whoever reads it tells of that.
        return
    # Windows has other rights, of which the mode says nothing.
    if os.name == "posix" and stat.S_ISREG(about.st_mode) and about.st_mode & stat.S_IROTH:
        _log.warning("every user of this machine can read %s, which holds %s: chmod o-r", str(path), what)
