"""The admin client: topics, settings, access rules, groups, offsets, transactions. `Admin`; `AsyncAdmin` for asyncio.

`calls` sends requests and repeats them after retriable errors. Each subject has a file that builds and reads its
messages. A shell runs the calls: `shell` on the caller's thread, `async_shell` on a thread beside the event loop.
"""

from kadence.admin.admin import Admin
from kadence.admin.values import (
    Acl,
    AclFilter,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    FencedProducer,
    GroupListing,
    MemberDescription,
    NewTopic,
    OffsetSpec,
    Outcomes,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConsumerGroupDescription",
    "FencedProducer",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "Outcomes",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
