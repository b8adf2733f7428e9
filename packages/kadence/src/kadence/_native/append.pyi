from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kadence._native.builder import RecordEncoder
from kadence.errors import KafkaError
from kadence.types import PartitionInfo, TopicPartition

# Rooms above this one have classes of these, which are not known here.
_Gate: TypeAlias = Any
_Delivery: TypeAlias = Any

def murmur2(data: bytes) -> int: ...
def estimated_size(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int: ...
def call_back(callbacks: list[Any], failed: Callable[[], None]) -> None: ...
def system_wall_ms() -> int: ...

class ProduceRequestResult:
    is_written: bool
    def __init__(self, gate: _Gate) -> None: ...
    @property
    def gate(self) -> _Gate: ...
    @property
    def done(self) -> bool: ...
    def add_callback(self, callback: Callable[[Any], object], future: Any) -> bool: ...
    @property
    def has_record_callbacks(self) -> bool: ...
    def end_alone(self) -> bool: ...
    def end(self) -> list[Any]: ...

class FutureRecordMetadata:
    def __init__(self, delivery: _Delivery, index: int, timestamp: int) -> None: ...
    @property
    def delivery(self) -> _Delivery: ...
    @property
    def index(self) -> int: ...
    @property
    def timestamp(self) -> int: ...

class OpenBatch:
    builder: RecordEncoder
    delivery: _Delivery
    size: int
    limit: int
    is_open: bool
    def __init__(self, builder: RecordEncoder, delivery: _Delivery, size: int, limit: int) -> None: ...
    @property
    def count(self) -> int: ...

class Sticky:
    current: int
    used: int
    switch_bytes: int
    def __init__(self, switch_bytes: int) -> None: ...

class TopicInfo:
    def __init__(
        self,
        infos: tuple[PartitionInfo, ...],
        partitions: tuple[TopicPartition, ...],
        available: tuple[int, ...],
        sticky: Sticky,
    ) -> None: ...
    @property
    def infos(self) -> tuple[PartitionInfo, ...]: ...
    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...
    @property
    def available(self) -> tuple[int, ...]: ...
    @property
    def sticky(self) -> Sticky: ...
    @property
    def open_batches(self) -> list[OpenBatch | None]: ...
    @property
    def count(self) -> int: ...

class FastAppender:
    used_bytes: int
    claimed_bytes: int
    is_usable: bool
    has_news: bool
    begin: Callable[[TopicPartition], OpenBatch | None] | None
    begun: Callable[[Any], None]
    def __init__(
        self,
        gate: _Gate,
        future_type: type[Any],
        batch_size: int,
        buffer_memory: int,
        largest: int,
        wall_ms: Callable[[], int],
    ) -> None: ...
    @property
    def gate(self) -> _Gate: ...
    @property
    def places(self) -> dict[str, TopicInfo]: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def buffer_memory(self) -> int: ...
    @property
    def largest(self) -> int: ...
    @property
    def future_type(self) -> type[Any]: ...
    @property
    def wall_ms(self) -> Callable[[], int]: ...
    @property
    def is_system(self) -> bool: ...
    def hold(self, batch: OpenBatch) -> None: ...
    def let_go(self, batch: OpenBatch) -> None: ...
    def put(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any = (),
    ) -> Any | None: ...

class ShortWay:
    is_serializing: bool
    def __init__(
        self,
        appender: FastAppender,
        key_serializer: Any,
        value_serializer: Any,
        choose: Callable[[str, bytes | None, Any], int | None] | None,
        looked_at: Callable[..., Any],
        not_taken: Callable[[KafkaError], None],
    ) -> None: ...
    @property
    def appender(self) -> FastAppender: ...
    @property
    def is_plain(self) -> bool: ...
    @property
    def held(self) -> dict[str, dict[Any, None]]: ...
    def only_on(self, loop: Any, running: Callable[[], Any], check: Callable[[], None]) -> None: ...
    def put(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any = (),
    ) -> Any | None: ...
