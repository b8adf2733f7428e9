"""Lines of Kadence's among those of Spark's log."""

from __future__ import annotations

import re
import subprocess
import sys

PROGRAM = """
import logging
from kadence.logs import logger
from kadence_spark.source.loss import Loss
from kadence_spark.worker_log import log_as_spark_does
from kadence.types import TopicPartition

log_as_spark_does()
log_as_spark_does()
loss = Loss(fail=False)
loss.aged_out(TopicPartition("t", 0), 3, 7)
loss.aged_out(TopicPartition("t", 0), 3, 7)
logging.getLogger("mine").warning("as it was")
logger("kadence.spark").info("nobody has asked for this")
logging.basicConfig(format="set up: %(message)s")
loss.aged_out(TopicPartition("t", 1), 3, 7)
"""


def test_a_loss_has_time_level_and_name_and_other_lines_stay() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loss, mine, set_up = said.stderr.splitlines()
    start = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN kadence\.spark: data loss, going on because of "
    assert re.match(start + r"failOnDataLoss=false: 4 offsets of t-0 were deleted", loss)
    assert mine == "as it was"
    assert set_up.startswith("set up: data loss, going on")
