"""Run the README's first snippet with an embedded broker on the Kadence that is installed here, and say what it is.

    python tools/try_wheel.py [README.md]

It imports nothing else of this checkout, so that an environment with a wheel in it alone can run it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

_SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def snippet(text: str) -> str:
    """The first Python snippet that brings its own broker."""
    found: list[str] = [each for each in _SNIPPET.findall(text) if "Broker(" in each]
    if not found:
        raise SystemExit("the README has no Python snippet with a Broker in it")
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readme", nargs="?", type=Path, default=Path(__file__).parent.parent / "README.md")
    asked = parser.parse_args()
    exec(compile(snippet(asked.readme.read_text(encoding="utf-8")), str(asked.readme), "exec"), {})  # noqa: S102

    import kadence
    from kadence.net import native_heartbeat
    from kadence.records import KERNEL
    from kadence.version import VERSION

    print(
        f"Kadence {VERSION} in {Path(kadence.__file__).parent} on Python {sys.version.split()[0]}: "
        f"checksum {KERNEL}, {'with' if native_heartbeat.AVAILABLE else 'without'} the native heartbeat"
    )


if __name__ == "__main__":
    main()
