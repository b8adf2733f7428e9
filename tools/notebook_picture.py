"""The picture of docs/notebook.md: examples/notebook.ipynb, run by Jupyter on an embedded broker, seen by Chromium.

    python -m venv /tmp/jupyter
    /tmp/jupyter/bin/pip install '.[notebook]' duckdb matplotlib nbclient nbconvert ipykernel
    /tmp/jupyter/bin/python tools/notebook_picture.py

Jupyter is no part of the project's environment; a test runs the notebook's cells without it (tests/examples). Without
ipywidgets the bar is text, which a page without scripts can show.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from kadence import Broker, Producer
from kadence.clock import wall_ms

ROOT: Final = Path(__file__).resolve().parents[1]
NOTEBOOK: Final = ROOT / "examples" / "notebook.ipynb"
PICTURE: Final = ROOT / "docs" / "pictures" / "notebook.png"
SIZE: Final = (900, 1260)
CITIES: Final = ("Oslo", "Lima", "Pune")


def fill(servers: str, count: int) -> None:
    """Orders of the last hour, more of them towards its end."""
    now = wall_ms()
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            order = {"id": number, "city": CITIES[number % 7 % 3], "amount": number % 50 + 0.5}
            ago = int(3_500_000 * (1 - number / count) ** 1.5)
            producer.send(
                "orders", json.dumps(order).encode(), b"customer-%d" % (number % 10), timestamp=now - ago
            )


def main() -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no Chromium on PATH (Debian: apt-get install chromium)")
    with Broker(topics={"orders": 3}) as broker, tempfile.TemporaryDirectory() as folder:
        fill(broker.bootstrap_servers, 30_000)
        os.environ["KADENCE_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
        notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
        NotebookClient(notebook, kernel_name="python3").execute()
        for cell in notebook.cells:
            streams = [each for each in cell.get("outputs", ()) if each.output_type == "stream"]
            if streams:
                # The bar is drawn over itself, which Jupyter shows, and a page does not.
                streams[0].text = re.sub(r"[^\n]*\r", "", "".join(each.text for each in streams))
                cell.outputs = [each for each in cell.outputs if each not in streams[1:]]
        page, _ = HTMLExporter().from_notebook_node(notebook)
        path = Path(folder) / "notebook.html"
        path.write_text(page)
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                "--virtual-time-budget=5000",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--screenshot={PICTURE}",
                path.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
