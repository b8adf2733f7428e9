"""``python -m kadence``: the command line."""

from __future__ import annotations

import sys

from kadence.cli import main

if __name__ == "__main__":
    sys.exit(main())
