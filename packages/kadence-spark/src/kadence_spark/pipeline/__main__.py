"""``python -m kadence_spark.pipeline FILE``: runs a pipeline without the command line's other parts.

spark-submit takes a script, which ``--entry`` names::

    spark-submit --master spark://… $(python -m kadence_spark.pipeline --entry) FILE
"""

from __future__ import annotations

import argparse
import os
import sys

from kadence.environment import Environment
from kadence.errors import ConfigError, KafkaError
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.progress import Progress, shown_lag
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.run import Run, close_session, open_session
from kadence_spark.pipeline.signals import Signals

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one file; the exit status: 0, 1 if it failed, 2 for mistakes in the file, 128 + n for signal n."""
    parser = argparse.ArgumentParser(prog="kadence-pipeline", description="Run a pipeline's file.")
    parser.add_argument("file", nargs="?")
    parser.add_argument(
        "--grace", type=float, default=30.0, help="seconds for a batch to end in (default: 30)"
    )
    parser.add_argument("--adopt-topic-ids", help="TOPIC=ID,…: for one start, copies with the same offsets")
    parser.add_argument("--entry", action="store_true", help="print the path that spark-submit takes")
    arguments = parser.parse_args(argv)
    if arguments.entry:
        # The script's directory is first on its path, so module names here must not hide those of other packages.
        import pyspark_kadence.pipeline

        print(pyspark_kadence.pipeline.__file__)  # noqa: T201 - this is what was asked for
        return 0
    if arguments.file is None:
        parser.error("name the pipeline's file")
    environment = Environment(os.environ)
    try:
        pipeline = checked(read(arguments.file), environment)
        with Signals(pipeline.name) as signals:
            spark = open_session(pipeline, environment)
            try:
                adopt = arguments.adopt_topic_ids
                running = Run(
                    pipeline, environment, spark, tell=_tell, grace=arguments.grace, adopt_topic_ids=adopt
                )
                return signals.run(running)
            finally:
                close_session(spark)
    except ConfigError as problem:
        _say(environment.hide(str(problem)))
        return 2
    except KafkaError as problem:
        _say(environment.hide(str(problem)))
        return 1


def _tell(progress: Progress) -> None:
    _say(f"{progress.state}: {progress.rows_in:,} records read, {shown_lag(progress.total_lag)}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - there is no log before there is a session


if __name__ == "__main__":
    sys.exit(main())
