"""The configuration keys that the network side of a share consumer needs, under their names in snake_case (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from kadence.consumer.group.membership import GroupConfig

__all__ = ["ShareKeys"]


class ShareKeys(GroupConfig, Protocol):
    """Beside the keys of every member.

    Of these, ``group_instance_id`` and ``group_remote_assignor`` are None, ``partition_assignment_strategy`` is empty.
    ``session_timeout_ms`` and ``heartbeat_interval_ms`` are the broker's affair: 45,000 and 5,000 until it says more.
    """

    @property
    def default_api_timeout_ms(self) -> int:
        """For how long what a poll has said is sent again."""
        ...

    @property
    def max_poll_records(self) -> int:
        """MaxRecords and BatchSize of a fetch."""
        ...

    @property
    def fetch_min_bytes(self) -> int: ...

    @property
    def fetch_max_bytes(self) -> int: ...

    @property
    def fetch_max_wait_ms(self) -> int: ...

    @property
    def buffer_memory(self) -> int:
        """Nothing is fetched ahead while answers that are not read yet take as many bytes."""
        ...

    @property
    def limits_records(self) -> bool:
        """Whether a fetch acquires no more than it asks for (KIP-1206)."""
        ...

    @property
    def share_lock_renewal(self) -> bool:
        """Whether the locks of what is not acknowledged are renewed while the application makes progress (Q2)."""
        ...
