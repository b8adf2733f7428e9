"""`metrics()` of a consumer: `reader` gives rows their groups and tags, the other files say what each row is.

The names are those of Kafka's own client; what it does not measure is in the group "kadence-consumer-metrics".
"""

from kadence.consumer.application.metrics.reader import Metrics, catalogue

__all__ = ["Metrics", "catalogue"]
