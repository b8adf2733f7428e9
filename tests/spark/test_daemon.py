"""The daemon that Spark forks its Python workers from. That workers of it read is what all the Spark tests show."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.spark.processes import environment

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is imported ahead")


@LINUX
def test_a_fork_after_the_imports_leaves_no_thread_behind_and_imports_nothing_more() -> None:
    program = """
import json, os, sys
from kadence.spark.daemon import import_ahead
import pyspark.worker
import_ahead()
threads = len(os.listdir("/proc/self/task"))
before = set(sys.modules)
from kadence import Consumer, Producer
Consumer({"bootstrap.servers": "127.0.0.1:1"}).close(timeout=0)
Producer({"bootstrap.servers": "127.0.0.1:1"}).close(timeout=0)
own = {name for name in set(sys.modules) - before if name.startswith(("kadence", "pyarrow", "pyspark"))}
print(json.dumps([threads, sorted(own), os.environ.get("JE_ARROW_MALLOC_CONF")]))
"""
    variables = environment(OMP_NUM_THREADS="1", JE_ARROW_MALLOC_CONF="narenas:2")
    said = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True
    )
    threads, imported, jemalloc = json.loads(said.stdout)
    assert threads == 1
    assert imported == []
    assert jemalloc == "narenas:2"
