"""librdkafka's mock cluster, by its C interface: brokers inside a library, a second opinion that needs no Java.

The library is the one inside confluent-kafka's wheel. Its mock reads the flexible versions of the group requests
as if they were not (it takes a compact array for a 32-bit count and closes the connection, or answers so), hence
the older versions below, which are those that librdkafka's own client uses.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PRODUCER = 0
# API key: newest version that the mock handles.
_NEWEST = {11: 5, 12: 3, 13: 1, 14: 3}


@dataclass(frozen=True)
class MockCluster:
    """A running mock cluster."""

    bootstrap_servers: str
    library: Any
    handle: Any

    def create_topic(self, name: str, partitions: int) -> None:
        code = self.library.rd_kafka_mock_topic_create(self.handle, name.encode(), partitions, 1)
        assert code == 0, f"rd_kafka_mock_topic_create: {code}"

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        code = self.library.rd_kafka_mock_partition_set_leader(self.handle, topic.encode(), partition, broker)
        assert code == 0, f"rd_kafka_mock_partition_set_leader: {code}"


def _library() -> Any:
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    pointers = ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new")
    for name in pointers:
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    handle = ctypes.c_void_p
    library.rd_kafka_new.argtypes = [ctypes.c_int, handle, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_conf_set.argtypes = [
        handle,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    library.rd_kafka_mock_cluster_new.argtypes = [handle, ctypes.c_int]
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [handle]
    library.rd_kafka_mock_set_apiversion.argtypes = [handle, *itertools.repeat(ctypes.c_int16, 3)]
    library.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [handle, ctypes.c_int32]
    library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms.argtypes = [handle, ctypes.c_int]
    library.rd_kafka_mock_topic_create.argtypes = [handle, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    library.rd_kafka_mock_partition_set_leader.argtypes = [
        handle,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_int32,
    ]
    library.rd_kafka_mock_cluster_destroy.argtypes = [handle]
    library.rd_kafka_destroy.argtypes = [handle]
    return library


@contextmanager
def mock_cluster(brokers: int = 3) -> Iterator[MockCluster]:
    """Start a mock cluster; it ends with the block."""
    library = _library()
    conf = library.rd_kafka_conf_new()
    why = ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(conf, b"log_level", b"0", why, len(why))
    client = library.rd_kafka_new(_PRODUCER, conf, why, len(why))
    assert client, why.value.decode()
    handle = library.rd_kafka_mock_cluster_new(client, brokers)
    for key, newest in _NEWEST.items():
        library.rd_kafka_mock_set_apiversion(handle, key, 0, newest)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(handle, 0)
    library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(handle, 200)
    bootstrap = library.rd_kafka_mock_cluster_bootstraps(handle).decode()
    try:
        yield MockCluster(bootstrap.replace("PLAINTEXT://", ""), library, handle)
    finally:
        library.rd_kafka_mock_cluster_destroy(handle)
        library.rd_kafka_destroy(client)
