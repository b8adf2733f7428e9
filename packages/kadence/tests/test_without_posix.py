"""A system that lacks what only POSIX has, as Windows does, in an interpreter from which those parts are taken away.

It shows that Python's own parts suffice for clients and for a broker in memory. Windows itself is not run here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.without_posix import TAKE_AWAY

WORK = """
from kadence import Admin, Broker, Consumer, ConfigError, KafkaError, Producer

with Broker(topics={"orders": 2}, nodes=2) as broker:
    servers = broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(100):
            producer.send("orders", bytes(20_000), key=b"%d" % number)
    with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        seen = sum(1 for _, record in zip(range(100), consumer))
    with Admin(bootstrap_servers=servers) as admin:
        print(seen, "records", sorted(admin.list_topics()))
try:
    with Admin(bootstrap_servers=servers, default_api_timeout_ms=1500) as admin:
        admin.list_topics()
except KafkaError as error:
    print("refused:", type(error).__name__)
try:
    Broker(data_dir="data")
except ConfigError as error:
    print(error)
"""


def test_clients_and_a_broker_in_memory_run_on_pythons_own_parts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TAKE_AWAY + WORK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "100 records ['orders']",
        "refused: KafkaTimeoutError",
        "a data directory needs the file locks of POSIX, which this system lacks; keep the data in memory",
    ], done.stderr
