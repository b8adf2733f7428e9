"""``python -m examples.demo.records | kadence produce flights``: the demo's records as JSON lines."""

from __future__ import annotations

import json
import signal

from examples.demo.flights import data_file, departures

if __name__ == "__main__":
    # The reader may close the pipe, as head does.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for departure in departures(data_file()):
        print(json.dumps({"key": departure["carrier"], "value": departure}, separators=(",", ":")))
