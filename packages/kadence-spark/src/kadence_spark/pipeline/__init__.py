"""A pipeline is a file: source, decoding, SQL, expectations, sink, dead letter records, trigger.

``kadence pipeline`` runs it. The modules, in the order of use: `model` defines all keys, `reading` checks a file
against them (`positions` finds its lines, `environment` the variables), `checks` asks the source and Spark's parser,
`frames` makes query plans (in which `keeping` keeps the record), `columns` checks their columns against the outputs,
`judging` evaluates the records of a batch once, `aggregating` makes groups of them, `outputs` writes them (`directory`:
to files), `run` runs the pipeline, `progress` and `status` report on it, `preview` shows the next run, `replay`
processes a range again (with `replace`). `files` reads and writes files of checkpoints and tables. `declare` makes
tables of Spark's own pipelines, and spark-submit starts `__main__`.

PySpark is not needed for reading and checking a file.
"""

from kadence_spark.pipeline.reading import Mistake, PipelineFileError

__all__ = ["Mistake", "PipelineFileError"]
