"""The options of the source, each with a line for its reader. `kadence_spark.source.options` reads them.

The sink knows them too, and leaves them out: jobs often share one set of options between both.
"""

from __future__ import annotations

from typing import Final

from kadence_spark.decode import options as decode

__all__ = ["OF_SOURCE"]

OF_SOURCE: Final[dict[str, str]] = {
    "subscribe": "Topics, comma separated.",
    "subscribePattern": "A Java regular expression that is found in the topic's name; ^ and $ anchor it.",
    "assign": 'Partitions as JSON, {"topic":[0,1]}.',
    "startingOffsets": (
        "earliest, latest, committed, or JSON with -2 for earliest and -1 for latest. Default: earliest for a batch, "
        "latest for a stream. A batch refuses latest."
    ),
    "startingTimestamp": "Start at the first record at or after this time, in ms since 1970.",
    "startingOffsetsByTimestamp": 'The same for each partition, {"topic":{"0":1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "error (default) or latest, for partitions without such a record.",
    "endingOffsets": "Batch only: latest (default), or JSON with -1 for latest.",
    "endingTimestamp": "Batch only: end before the first record at or after this time.",
    "endingOffsetsByTimestamp": "Batch only: the same for each partition.",
    "failOnDataLoss": "true (default): lost records end the query. false: they are skipped and logged.",
    "adoptTopicIds": (
        "Stream only, for one start: topic=id,... of topics that are copies, with equal offsets, of those in the "
        "checkpoint. The error about another topic names the value."
    ),
    "maxOffsetsPerTrigger": (
        "Stream only: about so many offsets in a micro-batch, in proportion to each partition's backlog."
    ),
    "minOffsetsPerTrigger": (
        "Stream only, not availableNow: wait for so many offsets, for maxTriggerDelay at most."
    ),
    "maxTriggerDelay": "Stream only: see minOffsetsPerTrigger. Default: 15m.",
    "maxBytesPerTrigger": (
        "Stream only: approximate bytes of keys, values and headers in a micro-batch; 64m is 64 MiB."
    ),
    "minPartitions": "The least number of tasks; large Kafka partitions are split.",
    "maxRecordsPerPartition": "The most offsets of a task; large Kafka partitions are split.",
    "maxBytesPerPartition": (
        "Approximate bytes of keys, values and headers in a task; large Kafka partitions are split."
    ),
    "targetRecordsPerTask": "Offsets of a task above which there are more tasks than run at once. Default: 500000.",
    "parallelism": (
        "How many tasks run at once. Default: from session() or the command line of spark-submit; otherwise the "
        "number of Kafka partitions."
    ),
    "includeHeaders": "Whether there is a column headers. Default: false.",
    "groupIdPrefix": "The beginning of the client ids in the brokers' logs.",
    "commitOffsets": "Stream only: commit the offsets of rows in the sink to kafka.group.id. Default: false.",
    "idlePollMs": "Stream only: the longest wait of an idle query before it reports to Spark. Default: 500.",
    "brokerTimeoutMs": "Stream only: how long a running query waits for silent brokers. Default: 300000.",
    "kafkaConsumer.pollTimeoutMs": "How long a task may wait for records that exist. Default: 120000.",
    "fetchOffset.numRetries": "How often a failed look-up of offsets is repeated. Default: 3.",
    "fetchOffset.retryIntervalMs": "The wait before each repetition. Default: 1000.",
    **decode.OPTIONS,
}
"""Every option but ``kafka.*``."""
