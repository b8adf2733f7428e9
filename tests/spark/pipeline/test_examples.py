"""Every file of examples/ runs, on data like that which its head tells to produce."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from pyspark.sql import SparkSession

from kadence import Broker, Producer
from kadence.cli.demo import flights
from kadence.spark.pipeline.checks import checked
from kadence.spark.pipeline.environment import Environment
from kadence.spark.pipeline.reading import read
from kadence.spark.pipeline.run import Run

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_there_is_a_test_for_each_example() -> None:
    assert [path.name for path in sorted(EXAMPLES.glob("*"))] == ["flights.toml"]


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
