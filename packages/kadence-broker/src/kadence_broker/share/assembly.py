"""Puts the leader side of share groups together for one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence_broker.cluster import Cluster
from kadence_broker.group_configs import settings_of
from kadence_broker.settings import Settings
from kadence_broker.share.dead_letters import DeadLetters
from kadence_broker.share.leader import ShareLeader

if TYPE_CHECKING:
    from kadence_broker.server.loop import Loop

__all__ = ["share_leader"]


def share_leader(settings: Settings, cluster: Cluster, loop: Loop) -> ShareLeader:
    """The share-partitions and sessions of a broker."""
    return ShareLeader(
        cluster,
        loop,
        settings_of(settings.coordinator(), lambda group_id: cluster.group_configs.get(group_id, {})),
        settings.share_max_sessions,
        DeadLetters(cluster, loop, settings).send,
    )
