"""What ``kadence top`` remembers from one run to the next: how views are sorted, and which one a group opens with."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kadence.own_files import check_own, new_file, own_directory

__all__ = ["Memory", "memory_file"]


def memory_file(variables: Mapping[str, str] = os.environ) -> Path:
    """Where it stands: ``kadence/top.json`` in the user's folder of state."""
    home = variables.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home, "kadence", "top.json")


@dataclass
class Memory:
    """What is remembered.

    Attributes:
        sort: of each view the name of the column that it is sorted by, and whether the other way. tab: the view that
            a group opens with. unfolds: whether groups without members are shown one by one.
    """

    sort: dict[str, tuple[str, bool]] = field(default_factory=dict)
    tab: str = ""
    unfolds: bool = False

    @classmethod
    def load(cls, path: Path) -> Memory:
        """What the file has; what is damaged in it, or all of it, is left out. So is a file that others may change."""
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
        """Write the file, whole or not at all. Where that is not possible, nothing is remembered."""
        text = json.dumps({"sort": self.sort, "tab": self.tab, "unfolds": self.unfolds})
        with contextlib.suppress(OSError):
            own_directory(path.parent)
            made = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
            with new_file(made) as file:
                file.write(text.encode())
            made.replace(path)
