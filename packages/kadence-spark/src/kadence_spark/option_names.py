"""The options of the source, each with a line for its reader. `kadence_spark.source.options` reads them.

The sink knows them too, and leaves them out: jobs often share one set of options between both.
"""

from __future__ import annotations

from typing import Final

from kadence_spark.decode import options as decode

__all__ = ["OF_SOURCE"]

OF_SOURCE: Final[dict[str, str]] = {
    "subscribe": "Topics, comma separated.",
    "subscribePattern": "Topics whose names contain a match of this Java regular expression, except internal ones.",
    "assign": 'Partitions as JSON, {"topic":[0,1]}.',
    "startingOffsets": (
        "earliest, latest, committed (by kafka.group.id), or JSON with every partition, such as "
        '{"topic":{"0":23,"1":-2}} (-2: earliest, -1: latest). Default: latest for a stream; earliest for a batch, '
        "which refuses latest."
    ),
    "startingTimestamp": (
        "Instead of startingOffsets: the first record of each partition at or after this time (ms since 1970)."
    ),
    "startingOffsetsByTimestamp": 'The same with a time for each partition, {"topic":{"0":1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "error (default) or latest (the end), for partitions without such a record.",
    "endingOffsets": "Batch only: latest (default), or JSON as for startingOffsets, without -2.",
    "endingTimestamp": "Batch only: end before the first record at or after this time.",
    "endingOffsetsByTimestamp": "Batch only: the same with a time for each partition.",
    "failOnDataLoss": "true (default): lost records fail the query. false: they are skipped and logged.",
    "adoptTopicIds": (
        "Stream only, for one start: topic=id,... of copies with the same offsets. The error about the new topic id "
        "shows the value."
    ),
    "maxOffsetsPerTrigger": "Stream only: the most offsets of a micro-batch (approximate).",
    "minOffsetsPerTrigger": (
        "Stream only, not with availableNow: a micro-batch waits until there are this many offsets, at most for "
        "maxTriggerDelay. The first one after a start does not wait."
    ),
    "maxTriggerDelay": "Stream only: see minOffsetsPerTrigger. Default: 15m.",
    "maxBytesPerTrigger": (
        "Stream only: the most bytes of keys, values and (if read) headers in a micro-batch (approximate). 64m: 64 MiB."
    ),
    "minPartitions": "The least number of tasks, if there are that many offsets; large Kafka partitions are split.",
    "maxRecordsPerPartition": "The most offsets of a task; larger Kafka partitions are split.",
    "maxBytesPerPartition": (
        "The most bytes of keys, values and (if read) headers in a task (approximate); larger Kafka partitions are "
        "split."
    ),
    "targetRecordsPerTask": (
        "The most offsets of a task on average, if there are enough Kafka partitions. Default: 500000."
    ),
    "parallelism": (
        "How many tasks can run at once. Default: as the settings of session(), or on Linux the command line of "
        "spark-submit, show it; otherwise the number of Kafka partitions."
    ),
    "includeHeaders": "Whether rows have a column `headers`, with the headers of the record. Default: false.",
    "groupIdPrefix": "The beginning of the source's client ids, unless kafka.client.id is set.",
    "commitOffsets": "Stream only: commit the offsets of finished batches to kafka.group.id. Default: false.",
    "idlePollMs": "Stream only: the longest wait for new records before Spark asks again. Default: 500.",
    "brokerTimeoutMs": "Stream only: a running query fails if brokers do not answer for so long. Default: 300000.",
    "kafkaConsumer.pollTimeoutMs": "A task fails if brokers send no records for so long. Default: 120000.",
    "fetchOffset.numRetries": (
        "Stream only: how often a look-up of offsets is repeated after a retriable error code. Default: 3."
    ),
    "fetchOffset.retryIntervalMs": "Stream only: the wait before each repetition. Default: 1000.",
    **decode.OPTIONS,
}
"""Every option but ``kafka.*``."""
