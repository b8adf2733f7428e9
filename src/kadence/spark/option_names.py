"""The options of the source, each with a line for its reader. `kadence.spark.source.options` reads them.

The sink knows them too, and leaves them out: jobs often share one set of options between both.
"""

from __future__ import annotations

from typing import Final

from kadence.spark.decode import options as decode

__all__ = ["OF_SOURCE"]

OF_SOURCE: Final[dict[str, str]] = {
    "subscribe": "Topics, comma separated.",
    "subscribePattern": "A regular expression of Java, found anywhere in a topic's name; ^ and $ bind it.",
    "assign": 'Partitions as JSON, {"topic":[0,1]}.',
    "startingOffsets": (
        "earliest, latest, committed, or JSON with -2 for earliest and -1 for latest. Default: earliest for a batch, "
        "latest for a stream. A batch takes no latest."
    ),
    "startingTimestamp": "Milliseconds since 1970: start at the first record at or after it.",
    "startingOffsetsByTimestamp": 'The same for each partition, {"topic":{"0":1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "error or latest: what to do where no record is so late.",
    "endingOffsets": "Batch only: latest, or JSON with -1 for latest.",
    "endingTimestamp": "Batch only: end before the first record at or after it.",
    "endingOffsetsByTimestamp": "Batch only: the same for each partition.",
    "failOnDataLoss": "Whether records that can no longer be read end the query (true), or are skipped and logged.",
    "adoptTopicIds": (
        "Stream only, for one start: topic=id,... of topics that are copies of those in the checkpoint, with each "
        "record at the same offset. The error that tells of another topic has the value."
    ),
    "maxOffsetsPerTrigger": "Stream only: most offsets of one micro-batch, spread by backlog.",
    "minOffsetsPerTrigger": "Stream only: wait for so many, but no longer than maxTriggerDelay.",
    "maxTriggerDelay": "Stream only: see minOffsetsPerTrigger; 15m.",
    "maxBytesPerTrigger": (
        "Stream only: about so many bytes of keys, values and headers in a micro-batch; 64m is 64 MiB."
    ),
    "minPartitions": "At least so many tasks; big Kafka partitions are split.",
    "maxRecordsPerPartition": "At most so many offsets in one task; big Kafka partitions are split.",
    "maxBytesPerPartition": (
        "About so many bytes of keys, values and headers in one task, as estimated from some records at both ends of "
        "each partition's range; 64m is 64 MiB. Big Kafka partitions are split."
    ),
    "targetRecordsPerTask": "About so many offsets to a task before there are more tasks than run at once; 500000.",
    "parallelism": (
        "How many tasks run at once, which Spark does not tell a source. Default: what kadence.spark.session() or the "
        "command line of spark-submit says of master and executors; else the number of Kafka partitions."
    ),
    "includeHeaders": "Whether there is a column headers.",
    "groupIdPrefix": "A name for the brokers' logs.",
    "commitOffsets": "Stream only: whether kafka.group.id gets the offsets that are in the sink; false.",
    "idlePollMs": "Stream only: the longest that an idle query waits for data before it reports to Spark; 500.",
    "brokerTimeoutMs": "Stream only: how long a running query waits for brokers that do not answer; 300000.",
    "kafkaConsumer.pollTimeoutMs": "How long a task may wait for data that must exist; 120000.",
    "fetchOffset.numRetries": "How often a failed look-up of offsets is repeated; 3.",
    "fetchOffset.retryIntervalMs": "The wait before each repetition; 1000.",
    **decode.OPTIONS,
}
"""Every option but ``kafka.*``."""
