"""The producer: small, idempotent, thread-safe.

Application threads append records to the `accumulator` under one lock. The producer's network thread calls the
`sender` (sans-IO, ``now`` as a parameter) for the requests to send. These two files decide everything; `producer` and
`thread` connect them to threads and sockets.
"""

from kadence.producer.arrow_delivery import ArrowDelivery, ArrowSummary, WrittenRows
from kadence.producer.futures import RecordFuture, RecordMetadata
from kadence.producer.producer import Producer

__all__ = ["ArrowDelivery", "ArrowSummary", "Producer", "RecordFuture", "RecordMetadata", "WrittenRows"]
