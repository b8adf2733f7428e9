"""``python -m kadence``: the command line, which is in the package kadence-cli."""

from __future__ import annotations

import sys

from kadence.errors import MissingDependencyError
from kadence.parts import part

if __name__ == "__main__":
    try:
        main = part("kadence_cli").main
    except MissingDependencyError as error:
        sys.exit(str(error))
    sys.exit(main())
