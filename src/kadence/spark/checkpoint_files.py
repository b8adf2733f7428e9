"""How Spark writes the files of a checkpoint that lies on this machine's disk.

A micro-batch has two such files, one of its offsets and one that it is done, and one for each state that it changes.
Hadoop renames each through an interface that asks for symbolic links. Without Hadoop's native library it runs the
program ``readlink`` to do so, eight times a file, beside two times ``chmod``: 20 processes for each micro-batch, and
half of the time of a small one. Spark's other way of writing them needs the two ``chmod`` only. On a local disk both
write under another name and rename, both look whether the file is there before, and both write checksums.

It is not set where it may matter: with a file system by default that is not this machine's, where somebody has chosen a
way already, or where a cluster runs the tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MANAGER", "write_without_programs"]

MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"

_PLAIN: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def write_without_programs(spark: SparkSession) -> None:
    """Do so in this session, whose master is local, where nothing speaks against it."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None  # the session runs
    place = context._jsc.hadoopConfiguration().get("fs.defaultFS", "")
    if spark.conf.get(MANAGER, None) is not None or not place.startswith("file:"):
        return
    try:
        jvm.java.lang.Class.forName(_PLAIN)
    except Py4JError:
        return  # another version of Spark has it elsewhere
    spark.conf.set(MANAGER, _PLAIN)
