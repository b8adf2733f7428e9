"""The operations that a client may perform on a topic, a group or the cluster, for responses (KIP-430).

There are no access rules here, so every client may perform all that Kafka knows for the kind of resource. A response
has one bit for each operation, at the number that the operation has in ACLs.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLUSTER_OPERATIONS", "GROUP_OPERATIONS", "TOPIC_OPERATIONS"]

_NUMBERS: Final = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}


def _bits(*operations: str) -> int:
    return sum(1 << _NUMBERS[each] for each in operations)


TOPIC_OPERATIONS: Final = _bits(
    "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
)
CLUSTER_OPERATIONS: Final = _bits(
    "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"
)
GROUP_OPERATIONS: Final = _bits("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
