"""examples/notebook.ipynb, without Jupyter: its cells are run one after the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kadence import Broker
from notebook_picture import NOTEBOOK, fill


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with Broker(topics={"orders": 3}) as broker:
        monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        yield broker.bootstrap_servers


def test_its_cells_run(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas: Any = pytest.importorskip("pandas")
    fill(servers, 700)
    drawn: list[Any] = []
    if "matplotlib" not in sys.modules:
        # It is large, and the only thing that it is asked for is to draw what is right already.
        plot = type("Plot", (), {"area": lambda _, **given: drawn.append(given)})
        monkeypatch.setattr(pandas.DataFrame, "plot", plot())
    # DuckDB looks for the table where the cells have their names.
    names: dict[str, Any] = {"__name__": "notebook"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # noqa: S102
        assert cell["outputs"] == []
    assert names["orders"].num_rows == 700
    assert names["cities"]["orders"].tolist() == [200, 300, 200]
    assert names["amounts"].sum().sum() == names["frame"]["value.amount"].sum() == 17_500.0
    assert len(drawn) == 1
