"""A login by module:function, which Spark brings to the driver and the workers; source and sink log in."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from kadence import Broker

pytestmark = pytest.mark.shared_spark

MODULE = """
import base64, json, time
from kadence import Token

def token():
    def part(of):
        return base64.urlsafe_b64encode(json.dumps(of).encode()).decode().rstrip("=")

    now = time.time()
    claims = {"sub": "alice", "iat": now - 60, "exp": now + 3600}
    return Token(f"{part({'alg': 'none'})}.{part(claims)}.", now + 3600)
"""


def test_source_and_sink_import_the_provider(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "login_of_a_job.py").write_text(MODULE)
    spark.sparkContext.addPyFile(str(tmp_path / "login_of_a_job.py"))
    with Broker(topics={"t": 2, "u": 1}, mechanisms=["OAUTHBEARER"]) as broker:
        login = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": broker.security_protocol,
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.provider": "login_of_a_job:token",
        }
        rows = spark.range(10).selectExpr("cast(id as string) value")
        rows.write.format("kadence").options(**login).option("topic", "t").mode("append").save()
        read = spark.read.format("kadence").options(**login).option("subscribe", "t").load()
        assert sorted(int(row.value) for row in read.collect()) == list(range(10))
        stream = spark.readStream.format("kadence").options(
            **login, subscribe="t", startingOffsets="earliest"
        )
        query = (
            stream.load()
            .select("value")
            .writeStream.format("kadence")
            .options(**login, topic="u", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        read = spark.read.format("kadence").options(**login).option("subscribe", "u").load()
        assert read.count() == 10
        wrong = {**login, "kafka.sasl.oauthbearer.token.provider": "login_of_nobody:token"}
        with pytest.raises(
            AnalysisException, match=r"(?s)'login_of_nobody' cannot be imported here .* every worker"
        ):
            spark.read.format("kadence").options(**wrong).option("subscribe", "t").load()
