"""The state that ``kadence top`` keeps between runs: the sort order of views, and the view of an opened group."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kadence.lazy_dataclasses import dataclass, field
from kadence.own_files import check_own, new_file, own_directory

__all__ = ["Memory", "memory_file"]


def memory_file(variables: Mapping[str, str] = os.environ) -> Path:
    """The file: ``kadence/top.json`` in the user's state folder."""
    home = variables.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home, "kadence", "top.json")


@dataclass(slots=True)
class Memory:
    """The remembered state.

    Attributes:
        sort: for each view, the name of its sort column, and whether it is reversed. tab: the view of an opened group.
            unfolds: whether groups without members are shown one by one.
    """

    sort: dict[str, tuple[str, bool]] = field(default_factory=dict)
    tab: str = ""
    unfolds: bool = False

    @classmethod
    def load(cls, path: Path) -> Memory:
        """Read the file, without invalid parts. A file that other users may change is ignored."""
        found: Any = None
        with contextlib.suppress(OSError, ValueError, RecursionError):
            check_own(path.parent)
            found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            return cls()
        sort, tab = found.get("sort"), found.get("tab")
        kept = {
            view: (each[0], each[1])
            for view, each in (sort.items() if isinstance(sort, dict) else ())
            if isinstance(each, list) and list(map(type, each)) == [str, bool]
        }
        return cls(kept, tab if isinstance(tab, str) else "", found.get("unfolds") is True)

    def save(self, path: Path) -> None:
        """Write the file atomically. Errors are ignored: the state is then not remembered."""
        text = json.dumps({"sort": self.sort, "tab": self.tab, "unfolds": self.unfolds})
        with contextlib.suppress(OSError):
            own_directory(path.parent)
            made = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
            with new_file(made) as file:
                file.write(text.encode())
            made.replace(path)
