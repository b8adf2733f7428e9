"""A pipeline into Delta, whose last batch is done again. Arguments: its file, its checkpoint."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kadence.environment import Environment
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.run import Run, close_session, open_session

file, checkpoint = sys.argv[1:]
environment = Environment(os.environ)
pipeline = checked(read(file), environment)
spark = open_session(pipeline, environment)
try:
    first = Run(pipeline, environment, spark).run()
    last = Path(checkpoint, "commits", str(first.batch))
    last.unlink()
    again = Run(pipeline, environment, spark).run()
    found = {}
    for name, output in (("sink", pipeline.sink), ("letters", pipeline.dead_letters)):
        assert output is not None
        table = spark.read.format("delta").load(environment.fill(output.place))
        found[name] = [row[0] for row in table.selectExpr("cast(value as string)").collect()]
finally:
    close_session(spark)
print(json.dumps({"batches": [first.batch, again.batch], "rows": found}))
