"""The versions of other clients that the pages for those who come from them speak of."""

from typing import Final

VERSIONS: Final = {"confluent-kafka": "2.16.1", "kafka-python": "3.0.12", "aiokafka": "0.14.0"}
