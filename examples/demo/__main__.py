"""``python -m examples.demo``, which ``make demo`` runs."""

from __future__ import annotations

import sys

from examples.demo.command import make_parser

from kadence_cli.main import main

if __name__ == "__main__":
    sys.exit(main(parser=make_parser()))
