"""Commands on a system that lacks what only POSIX has, as Windows does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from tests.patience import PATIENCE
from tests.without_posix import TAKE_AWAY

from kadence import Consumer, Producer
from kadence_broker import Broker

PROGRAM = [
    sys.executable,
    "-W",
    "error",
    "-c",
    f"{TAKE_AWAY}\nfrom kadence_cli import main\nsys.exit(main())",
]


def test_a_broker_runs_until_it_is_told_to_end() -> None:
    with subprocess.Popen(
        [*PROGRAM, "broker", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            servers = json.loads(broker.stdout.readline())["bootstrap_servers"]
            with Producer(bootstrap_servers=servers) as producer:
                producer.send("t", b"first").result(PATIENCE)
            broker.send_signal(signal.SIGINT)
            _, errors = broker.communicate(timeout=PATIENCE)
        finally:
            broker.kill()
    assert broker.returncode == 0, errors


def test_why_a_group_lags(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"first").result(PATIENCE)
    with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        next(consumer)
    done = subprocess.run(
        [*PROGRAM, "groups", "why", "g", "--for", "1", "--json", "-b", servers],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
