#!/usr/bin/env bash
# PySpark 4.3.0 and 4.2.0, with sources and sinks of Spark's own.
#
# Behaviour: an application that is killed while Spark writes offsets/0, the offsets of a query's first batch, leaves a
# hidden file offsets/.0.UUID.tmp behind. Every later start of the query ends with
# STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY, although no batch ever began; so it does for this query, which has no state
# store. Somebody has to delete the file, or to set spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart=false.
#
# What a good engineer would have guessed: Spark writes a hidden file and renames it just so that a kill at any moment
# does no harm. The restarted query ignores the hidden file and begins with its first batch.
#
# Control: killed at the same point of the second batch (offsets/.1.UUID.tmp), the query goes on when it starts again.
#
# How it kills: Hadoop's local file system calls the program chmod between making the file and writing into it. A chmod
# that stands before the system's in PATH kills Spark's Java process with SIGKILL when the file has that name. Nothing
# in the checkpoint is made or changed by hand.
#
# Usage: spark_half_written_offsets.sh [VERSION OF PYSPARK]
# Needs Java 17, Python with venv (or PYTHON=...), pkill, Linux. Takes three minutes, and downloads 450 MB. Exits with 0
# when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
#
# Seen (with 4.2.0 the same but for the sizes of files):
#   PySpark 4.3.0
#   killed at offsets/.1.: commits/.0.crc (12 bytes) commits/0 (29 bytes) offsets/.0.crc (20 bytes) offsets/.1.UUID.tmp (0 bytes) offsets/0 (1158 bytes)
#     started again: runs
#   killed at offsets/.0.: offsets/.0.UUID.tmp (0 bytes)
#     started again: refused: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY
#     and again: refused: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY
#     with verifyCheckpointDirectoryEmptyOnStart=false: runs
#   SEEN
set -euo pipefail

version=${1:-4.3.0}
work=$(mktemp -d)
job=
clean_up() {
    {
        [ -z "$job" ] || pkill -KILL -P "$job" || true
        kill -KILL $job || true
        wait $job || true
    } 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
cd "$work"
unset SPARK_HOME SPARK_REMOTE SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS
# A killed Spark leaves folders: all of them are in ours.
mkdir tmp
export TMPDIR="$work/tmp" SPARK_LOCAL_DIRS="$work/tmp"
export JAVA_TOOL_OPTIONS="${JAVA_TOOL_OPTIONS:-} -Djava.io.tmpdir=$work/tmp -XX:-UsePerfData"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check "pyspark==$version" || exit 2

cat >query.py <<'PYTHON'
"""Spark's own rate source into its sink that drops all; ends once the batch that is named is committed."""

import os
import re
import sys
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

checkpoint, last, verify = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
if verify != "default":
    builder = builder.config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", verify)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
query = (
    spark.readStream.format("rate").load()
    .writeStream.format("noop").option("checkpointLocation", f"file:{checkpoint}").start()
)  # fmt: skip
end = time.monotonic() + 120
try:
    while not os.path.exists(f"{checkpoint}/commits/{last}") and time.monotonic() < end:
        query.awaitTermination(0.2)
except StreamingQueryException as problem:
    print("refused:", re.findall(r"\[([A-Z_]+)\]", str(problem).splitlines()[0])[-1])
    sys.exit(3)
print("runs" if time.monotonic() < end else "does nothing")
query.stop()
spark.stop()
PYTHON

# Spark makes a hidden file, Hadoop's local file system calls chmod for it, Spark writes into it and renames it. This
# chmod kills Spark's Java process when the file is of the name in $KILL_AT: as kill -9 or the kernel may, just then.
mkdir bin
cat >bin/chmod <<'SH'
#!/bin/sh
case $* in *"$KILL_AT"*) kill -KILL "$PPID" ;; esac
PATH=${PATH#*:}
exec chmod "$@"
SH
chmod +x bin/chmod

# query OPTIONS...: in the background, so that a signal ends this script at once.
query() {
    venv/bin/python query.py "$@" >answer 2>log &
    job=$!
    wait "$job" && result=0 || result=$?
    job=
}

no_verdict() {
    tail -5 log
    echo "NO VERDICT: $1"
    exit 2
}

# killed_at NAME CHECKPOINT: an application that is killed while it writes this file.
killed_at() {
    export KILL_AT=$1
    PATH="$work/bin:$PATH" query "$work/$2" 99 default
    [ "$result" = 1 ] && [ -n "$(find "$2" -path "*$1*.tmp")" ] || no_verdict "Spark was not killed at $1"
    echo "killed at $1:" $(cd "$2" && find offsets commits -type f -printf '%p (%s bytes)\n' |
        sed -E 's/[0-9a-f-]{36}/UUID/' | sort)
}

# start CHECKPOINT BATCH VERIFY: the same query again, until this batch is done.
start() {
    query "$work/$1" "$2" "$3"
    [ "$result" = 0 ] || [ "$result" = 3 ] || no_verdict "the query ended with $result"
}

echo "PySpark $version"
killed_at offsets/.1. control
start control 2 default
control=$(<answer)
echo "  started again: $control"
killed_at offsets/.0. first
start first 1 default
once=$(<answer)
echo "  started again: $once"
start first 1 default
twice=$(<answer)
echo "  and again: $twice"
start first 1 false
without=$(<answer)
echo "  with verifyCheckpointDirectoryEmptyOnStart=false: $without"

refused="refused: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
if [ "$control" = runs ] && [ "$once" = "$refused" ] && [ "$twice" = "$refused" ] && [ "$without" = runs ]; then
    echo "SEEN"
else
    echo "CHANGED"
    exit 1
fi
