"""The admin client: topics, settings, access rules, groups, offsets, transactions. `Admin`; `AsyncAdmin` for asyncio.

`calls` sends requests and repeats them after retriable errors. Each subject has a file with its operations and values;
`operations` and `async_operations` are made of them. A shell runs the calls: `shell` on the caller's thread,
`async_shell` on a thread beside the event loop.
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
