"""The admin client: topics, settings, access rules, groups, offsets, transactions. `Admin`; `AsyncAdmin` for asyncio.

Each subject has a file with its operations and values; `operations` and `async_operations` are made of them. Calls are
generators, which a shell carries: `shell` on the caller's thread, `async_shell` on an event loop. They ask by `asking`
and are repeated by `calls`; `manager` sends what they ask, on the network thread that `network` starts.
"""

from kadence.admin.acls import Acl, AclFilter
from kadence.admin.admin import Admin
from kadence.admin.cluster import ClusterDescription
from kadence.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from kadence.admin.groups import ConsumerGroupDescription, GroupListing, MemberDescription
from kadence.admin.offsets import OffsetSpec
from kadence.admin.producers import ProducerState
from kadence.admin.replicas import ElectionType, LogDirDescription, ReplicaInfo
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
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
