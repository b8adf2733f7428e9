"""Check an environment in which the client was installed alone: what pip brought, and what names of other packages say.

    python tools/try_client.py

It imports nothing else of this checkout. The exit status is 1, with a line for each difference, if something differs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distributions, entry_points
from typing import Final

import kadence

ALONE: Final = {"kadence", "cramjam"}
"""The distributions that `pip install kadence` brings."""

SAYS: Final[dict[str, tuple[Callable[[], object], str]]] = {
    "kadence.Broker": (
        lambda: kadence.Broker,
        "kadence_broker is not installed: pip install 'kadence[broker]'",
    ),
    "kadence.read": (
        lambda: kadence.read("orders", value="avro", schema_registry_url="http://localhost:1"),
        "read() needs pyarrow: pip install 'kadence[arrow]'",
    ),
}
"""What is called, and the sentence with which it must refuse."""

COMMAND: Final = "kadence_cli is not installed: pip install 'kadence[cli]'\n"


def differences() -> Iterator[str]:
    found = {each.name for each in distributions()} - {"pip", "setuptools"}
    if found != ALONE:
        yield f"pip brought {sorted(found)}, not {sorted(ALONE)}"
    for group in ("pytest11", "console_scripts"):
        if named := [each.name for each in entry_points(group=group) if each.value.startswith("kadence")]:
            yield f"the client registers {named} as {group}"
    for name, (call, expected) in SAYS.items():
        try:
            call()
        except kadence.MissingDependencyError as error:
            if str(error) != expected:
                yield f"{name} says {error}"
        else:
            yield f"{name} works without its package"
    done = subprocess.run(
        (sys.executable, "-m", "kadence", "topics", "list"), capture_output=True, text=True, check=False
    )
    if (done.returncode, done.stdout, done.stderr) != (1, "", COMMAND):
        yield f"python -m kadence ended with {done.returncode} and said {done.stdout}{done.stderr}"


def main() -> int:
    found = list(differences())
    print("\n".join(found) or f"{len(SAYS) + 1} names of other packages say what to install")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
