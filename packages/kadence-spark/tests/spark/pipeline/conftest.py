"""A pipeline's file for one test, over a topic of numbers as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import Cluster

from kadence import Producer
from kadence.environment import Environment
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.model import Pipeline
from kadence_spark.pipeline.reading import read

FILE = """\
name = "numbers"
checkpoint = "{directory}/checkpoint"
{top}
[source]
servers = "{servers}"
topics = ["{topic}"]
startingOffsets = "earliest"
{source}
[decode]
format = "json"
schema = "id bigint, part string"
{tables}
{sink}
[dead_letters]
path = "{directory}/letters"
"""

SINK = """\
[sink]
path = "{directory}/table"
partition_by = ["part"]
"""

TABLES = """\
[[transform]]
name = "halves"
sql = "SELECT id, part, id / 2 AS half FROM records WHERE id IS NOT NULL"

[[expect]]
name = "small"
condition = "id < 1000"
action = "drop"

[[expect]]
name = "even"
condition = "id % 2 = 0"
"""


class File:
    """Writes the file, and produces what it reads."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.path = directory / "numbers.toml"
        self.environment = Environment({})

    def produce(self, ids: range, *, partition: int | None = None) -> None:
        """``part`` is 000 to 002, as texts that look like numbers."""
        self.send(*(b'{"id":%d,"part":"%03d"}' % (number, number % 3) for number in ids), partition=partition)

    def send(self, *values: bytes | None, partition: int | None = None) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap_servers) as producer:
            for value in values:
                producer.send(self.cluster.topic, value, b"key", partition=partition, headers=[("h", b"1")])

    def write(self, *, top: str = "", source: str = "", tables: str = TABLES, sink: str = SINK) -> Pipeline:
        parts = {"directory": self.directory, "servers": self.cluster.bootstrap_servers}
        more = {"top": top, "source": source, "tables": tables, "sink": sink.format(**parts)}
        self.path.write_text(FILE.format(**parts, **more, topic=self.cluster.topic))
        return checked(read(self.path, {}), self.environment)


@pytest.fixture
def file(cluster: Cluster, tmp_path: Path) -> File:
    return File(cluster, tmp_path)
