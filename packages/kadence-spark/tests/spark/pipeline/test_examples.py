"""What examples/ has for Spark runs, on data like that which the heads of the files tell to produce."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from examples.demo import flights
from pyspark.sql import SparkSession

from kadence import Broker, Producer
from kadence.environment import Environment
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.run import Run

pytestmark = pytest.mark.shared_spark

EXAMPLES = Path(__file__).parents[5] / "examples"


def test_flights(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(topics={"flights": 2}) as broker:
        carriers = set()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for departure in islice(flights.departures(flights.data_file()), 500):
                carriers.add(departure["carrier"])
                producer.send("flights", flights.to_json(departure))
            producer.send("flights", b'{"year": 2013, "carrier": null}')
        variables = {"KADENCE_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "FLIGHTS_OUTPUT": str(tmp_path)}
        environment = Environment(variables)
        pipeline = checked(read(EXAMPLES / "flights.toml", variables), environment)
        done = Run(pipeline, environment, spark).run()
    assert (done.rows_in, done.rows_out, done.dropped, done.expectations["has_a_carrier"]) == (501, 500, 1, 1)
    assert str(tmp_path) not in done.to_json()  # what comes from the environment is shown nowhere
    table = spark.read.parquet(str(tmp_path / "flights"))
    assert {row.carrier for row in table.select("carrier").distinct().collect()} == carriers
    assert dict(table.dtypes)["scheduled"] == "timestamp"


def test_a_job_reads_a_topic_as_a_batch_and_as_a_stream(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: `kadence_spark.session` finds the session that runs. The stream continues where it was."""
    program = str(EXAMPLES / "spark_job.py")
    monkeypatch.setattr(sys, "argv", [program, str(tmp_path)])
    departures = list(islice(flights.departures(flights.data_file()), 60))
    with Broker(topics={"flights": 2}) as broker:
        monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        for start, end in ((0, 40), (40, 60)):
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for departure in departures[start:end]:
                    producer.send("flights", flights.to_json(departure))
            runpy.run_path(program, run_name="__main__")
            counts = Counter(departure["carrier"] for departure in departures[:end])
            expected = [f"{carrier} {count}" for carrier, count in sorted(counts.items())]
            assert capsys.readouterr().out.splitlines() == [*expected, f"{end} rows landed"]
