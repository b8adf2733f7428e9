"""The admin client: topics, settings, access rules, groups, offsets, transactions. `Admin`; `AsyncAdmin` for asyncio.

Each subject has a file with its operations and values; `operations` and `async_operations` are made of them. Calls are
generators, which a shell carries: `shell` on the caller's thread, `async_shell` on an event loop. They ask by `asking`
and are repeated by `calls`; `manager` sends what they ask, on the network thread that `network` starts, and
`direct_calls` sends a single request on the caller's thread, while nothing else is under way.
"""

from kadence.admin.acls import Acl, AclFilter
from kadence.admin.admin import Admin
from kadence.admin.cluster import ClusterDescription
from kadence.admin.config_changes import ConfigChange
from kadence.admin.configs import ConfigEntry, ConfigResource
from kadence.admin.dead_letter_queues import DeadLetterQueue
from kadence.admin.group_list import GroupListing
from kadence.admin.groups import ConsumerGroupDescription, MemberDescription
from kadence.admin.offsets import OffsetSpec
from kadence.admin.producers import ProducerState
from kadence.admin.replicas import ElectionType, LogDirDescription, ReplicaInfo
from kadence.admin.share_groups import ShareGroupDescription
from kadence.admin.share_offsets import ShareGroupOffset
from kadence.admin.transactions import FencedProducer, TransactionDescription, TransactionListing
from kadence.admin.values import NewTopic, Outcomes, TopicDescription

__all__ = [
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConsumerGroupDescription",
    "DeadLetterQueue",
    "ElectionType",
    "FencedProducer",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "Outcomes",
    "ProducerState",
    "ReplicaInfo",
    "ShareGroupDescription",
    "ShareGroupOffset",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
