"""Partitions and what they keep: validation, producers' sequences, transactions, leader epochs, the log.

`Partition` is the door: handlers and coordinators append and read through it alone. It knows nothing of requests,
sockets or the loop, and runs on the broker's thread.
"""

from __future__ import annotations

from kadence_broker.storage.aborted import Aborted
from kadence_broker.storage.batches import Allowance
from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.directory import FSYNC, DataDirectory, FsyncPolicy
from kadence_broker.storage.errors import BatchError
from kadence_broker.storage.flusher import Flusher, Worker
from kadence_broker.storage.lookup import TimedOffset
from kadence_broker.storage.partition import Appended, Isolation, Origin, Partition

__all__ = [
    "FSYNC",
    "Aborted",
    "Allowance",
    "Appended",
    "BatchError",
    "DataDirectory",
    "Flusher",
    "FsyncPolicy",
    "Isolation",
    "LogConfig",
    "Origin",
    "Partition",
    "TimedOffset",
    "Worker",
]
