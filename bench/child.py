"""One run of one client: ``python bench/child.py ROW LINE PLAN`` prints its figures as one line of JSON.

`harness.children` starts it; PLAN is a `harness.plan.Plan` as JSON. No client is imported before its own line runs, so
that what an import costs can be measured.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from harness.plan import OTHER, Plan, Row


def main(row_name: str, line: str, plan: dict[str, Any]) -> None:
    row: Row = importlib.import_module(f"rows.{row_name}").ROW
    # What follows the mark tells apart lines of another checkout, which the environment points to, or another Python.
    name, _, _ = line.partition(OTHER)
    print(json.dumps(row.lines[name].run(Plan(**plan))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
