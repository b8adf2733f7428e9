"""Topics, settings, access rules, groups and offsets from the outside: `Admin`, and `AsyncAdmin` for event loops.

`calls` drives the network and repeats what may pass by itself; a file for each subject knows the messages; a shell runs
calls, on the caller's thread (`shell`) or on one beside the event loop (`async_shell`).
"""

from kadence.admin.admin import Admin
from kadence.admin.values import (
    Acl,
    AclFilter,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    OffsetSpec,
    Outcomes,
    TopicDescription,
)

__all__ = [
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "Outcomes",
    "TopicDescription",
]
