"""Archives of Java's classes, with which Spark and Kafka start at half the cost: `make test` starts dozens of them.

Java reads, checks and lays out each class of its jars anew whenever it starts. From an archive (class data sharing) it
maps them into memory. This program makes one for Kafka's jars and one for Spark's, below ``build/java-classes``:

    python tools/java_archives.py

Java takes an archive only with the jars and the Java that it was made from, and starts as ever without it. So a run
without archives is slower, and no different.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kadence.errors import KafkaError
from kadence.java import Java, find_java
from kadence_testing.kafka import Kafka, kafka_jars

__all__ = ["environment", "spark_home"]

ROOT: Final = Path(__file__).parents[1]

FOLDER: Final = ROOT / "build" / "java-classes"

_VARIABLES: Final = {"kafka": "KADENCE_KAFKA_JAVA_OPTIONS", "spark": "SPARK_SUBMIT_OPTS"}
"""Where Kafka's JVMs and Spark's take options from."""

_PATIENCE: Final = 600.0
"""Seconds for what takes fifteen on a quiet machine."""

_SPARK: Final = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

place = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.warehouse.dir", place + "/warehouse")
    .getOrCreate()
)
rows = spark.range(9).selectExpr("id", "cast(id % 2 AS string) AS part", "id / 2 AS half")
rows.write.partitionBy("part").parquet(place + "/in")
spark.read.parquet(place + "/in").where("id > 2").groupBy("part").count().collect()
stream = spark.readStream.schema("id bigint, half double, part string").parquet(place + "/in")
query = stream.writeStream.format("parquet").option("checkpointLocation", place + "/checkpoint")
query.trigger(availableNow=True).start(place + "/out").awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
sys.exit(java.wait())
"""
"""What most tests do with Spark; then Java ends as it does by itself, and writes the archive."""


def environment() -> dict[str, str]:
    """Variables by which the JVMs of this run take the archives that there are."""
    found = {}
    for name, variable in _VARIABLES.items():
        for archive in FOLDER.glob(f"{name}-*.jsa"):
            # Of an archive that it does not take it would speak on stdout, which is a tool's answer.
            options = f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"
            found[variable] = f"{os.environ.get(variable, '')} {options}".strip()
    return found


def spark_home(spark: Path) -> Path:
    """PySpark's own files as a home of Spark, at a path that stays: Java takes no archive of jars elsewhere.

    Without the zip of PySpark beside them: Python compiles what it imports from a zip in each process, of which a
    session of Spark has a dozen.
    """
    home = FOLDER.parent / f"spark-home-{_digest(str(spark))}"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "conf", "data", "jars", "licenses", "sbin"):
        with suppress(FileExistsError):
            (home / name).symlink_to(spark / name)
    return home


def main() -> int:
    """Make the archives that are missing. What cannot be made is said, and is no failure."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        java = find_java()
        _make("kafka", java, kafka_jars(), _run_kafka)
        if (spark := find_spec("pyspark")) is not None and spark.origin is not None:
            home = spark_home(Path(spark.origin).parent)
            _make("spark", java, home / "jars", lambda archive: _run_spark(java, home, archive))
    except (KafkaError, OSError, subprocess.SubprocessError) as error:
        print(f"without archives of Java's classes, as one could not be made: {error}", file=sys.stderr)
    return 0


def _make(name: str, java: Java, jars: Path, run: Callable[[Path], None]) -> None:
    release = java.home / "release"
    files = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in sorted(jars.iterdir())]
    text = release.read_text(errors="replace") if release.exists() else ""
    archive = FOLDER / f"{name}-{_digest(str(java.home), text, str(jars), str(files))}.jsa"
    if archive.exists():
        return
    for other in FOLDER.glob(f"{name}-*.jsa"):
        other.unlink()
    print(f"reading the classes of {name} into {archive.relative_to(ROOT)} (half a minute, once)", flush=True)
    half = archive.with_suffix(".half")
    half.unlink(missing_ok=True)
    run(half)
    half.rename(archive)


def _run_kafka(archive: Path) -> None:
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={archive}")
    with Kafka(jvm_options=options) as node:
        os.kill(node.pid, signal.SIGTERM)
        os.waitid(os.P_PID, node.pid, os.WEXITED | os.WNOWAIT)


def _run_spark(java: Java, home: Path, archive: Path) -> None:
    variables = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={archive}",
    }
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            [sys.executable, "-c", _SPARK, place],
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=True,
        )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
