"""A pipeline is a file: source, decoding, SQL, expectations, sink, dead letters, trigger. ``kadence pipeline`` runs it.

The modules, in the order in which a file passes through them: `model` is the table of all keys, `reading` checks a
file against it (`positions` knows its lines, `environment` the variables), `checks` asks the source and Spark's
parser, `frames` makes query plans (`keeping` has them keep the record), `judging` judges the records of a batch once,
`aggregating` makes groups of them, `outputs` writes them, `run` runs it, `progress` and `status` tell of it, `preview`
plans it, `replay` does a range again (`replace`). `files` are those of checkpoints and tables. `declare` makes it
tables of Spark's own pipelines, and `__main__` is what spark-submit starts.

Reading and checking a file needs no PySpark.
"""

from kadence.spark.pipeline.reading import Mistake, PipelineFileError

__all__ = ["Mistake", "PipelineFileError"]
