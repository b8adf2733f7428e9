"""Topics, groups and offsets from the outside. Synchronous: a call sends, waits and answers on its own thread.

`calls` drives the network and repeats what may pass by itself; `topics`, `groups` and `offsets` know the
messages; `admin` is the door.
"""

from kadence.admin.admin import Admin
from kadence.admin.values import (
    ClusterDescription,
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
    "Admin",
    "ClusterDescription",
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
