"""The options of the source, each with a line for its reader. `kadence_spark.source.options` reads them.

The sink knows them too, and leaves them out: jobs often share one set of options between both.
"""

from __future__ import annotations

from typing import Final

from kadence_spark.decode import options as decode

__all__ = ["OF_SOURCE"]

OF_SOURCE: Final[dict[str, str]] = {
    "subscribe": "Topics, comma separated.",
    "subscribePattern": "Topics whose names contain a match of this Java regular expression, save internal ones.",
    "assign": 'Partitions as JSON, {"topic":[0,1]}.',
    "startingOffsets": (
        "earliest, latest, committed (by kafka.group.id), or JSON with every partition, such as "
        '{"topic":{"0":23,"1":-2}} (-2: earliest, -1: latest). Default: latest for a stream; earliest for a batch, '
        "which refuses latest."
    ),
    "startingTimestamp": "Instead of startingOffsets: the first record at or after this time, in ms since 1970.",
    "startingOffsetsByTimestamp": 'The same for each partition, {"topic":{"0":1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "error (default) or latest, for partitions without such a record.",
    "endingOffsets": "Batch only: latest (default), or JSON as for startingOffsets, without -2.",
    "endingTimestamp": "Batch only: end before the first record at or after this time.",
    "endingOffsetsByTimestamp": "Batch only: the same for each partition.",
    "failOnDataLoss": "true (default): lost records end the query. false: they are skipped and logged.",
    "adoptTopicIds": (
        "Stream only, for one start: topic=id,... of topics that are copies, with equal offsets. The error about the "
        "new id shows it."
    ),
    "maxOffsetsPerTrigger": "Stream only: about the most offsets of a micro-batch.",
    "minOffsetsPerTrigger": (
        "Stream only, not availableNow: a batch waits for so many offsets, at most for maxTriggerDelay, but not the "
        "first after a start."
    ),
    "maxTriggerDelay": "Stream only: see minOffsetsPerTrigger. Default: 15m.",
    "maxBytesPerTrigger": (
        "Stream only: about the most bytes of keys, values and (if read) headers in a micro-batch; 64m is 64 MiB."
    ),
    "minPartitions": "The least number of tasks, if there are as many offsets; large Kafka partitions are split.",
    "maxRecordsPerPartition": "The most offsets of a task; larger Kafka partitions are split.",
    "maxBytesPerPartition": (
        "About the most bytes of keys, values and (if read) headers in a task; larger Kafka partitions are split."
    ),
    "targetRecordsPerTask": (
        "More offsets a task, on average, make more tasks, up to one for each Kafka partition or part of one. "
        "Default: 500000."
    ),
    "parallelism": (
        "How many tasks can run at once. Default: as session(), or on Linux the command line of spark-submit, says; "
        "otherwise the number of Kafka partitions."
    ),
    "includeHeaders": "Whether there is a column headers. Default: false.",
    "groupIdPrefix": "The beginning of the source's client ids, unless kafka.client.id is set.",
    "commitOffsets": "Stream only: commit the offsets of rows in the sink to kafka.group.id. Default: false.",
    "idlePollMs": "Stream only: the longest wait for new records before Spark asks again. Default: 500.",
    "brokerTimeoutMs": "Stream only: how long a running query waits for brokers that do not answer. Default: 300000.",
    "kafkaConsumer.pollTimeoutMs": "How long a task waits for brokers to send records. Default: 120000.",
    "fetchOffset.numRetries": (
        "Stream only: how often a look-up of offsets is repeated after an error that may pass. Default: 3."
    ),
    "fetchOffset.retryIntervalMs": "Stream only: the wait before each repetition. Default: 1000.",
    **decode.OPTIONS,
}
"""Every option but ``kafka.*``."""
