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
    outstanding: int
    topic: str
    partition: int
    expedite: Callable[[Any], None] | None
    asked: Any
    direct: Any
    _parts: list[Any] | None
    _watchers: dict[Any, None] | None
    _waiters: dict[Any, dict[Any, None]] | None
    _unnotified: set[Any]
    def __init__(
        self, topic: str, partition: int, gate: _Gate, unnotified: set[Any] | None = None
    ) -> None: ...
    @property
    def gate(self) -> _Gate: ...
    @property
    def done(self) -> bool: ...
    def add_callback(self, callback: Callable[[Any], object], future: Any) -> bool: ...
    @property
    def has_callbacks(self) -> bool: ...
    @property
    def alone(self) -> tuple[int, int] | None: ...
    def written_alone(self, base_offset: int, log_append_time: int) -> bool: ...
    def end(self) -> list[Any]: ...

class FutureRecordMetadata:
    def __init__(self, delivery: _Delivery, index: int, timestamp: int) -> None: ...
    @property
    def delivery(self) -> _Delivery: ...
    @property
    def index(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    def _written(self) -> tuple[str, int, int, int] | None: ...

class OpenBatch:
    builder: RecordEncoder
    delivery: _Delivery
    size: int
    limit: int
    is_open: bool
    lingers: bool
    tp: TopicPartition
    created: int
    deadline: int
    not_before: int
    first: int
    attempts: int
    producer_id: int
    epoch: int
    base_sequence: int
    encoded: bytes | memoryview | None
    last_error: KafkaError | None
    def __init__(
        self,
        tp: TopicPartition,
        created: int,
        deadline: int,
        builder: RecordEncoder,
        delivery: _Delivery,
        limit: int,
    ) -> None: ...
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
    now_ms: Callable[[], int] | None
    direct: Any
    expedite: Callable[[Any], None] | None
    incomplete: set[Any]
    unnotified: set[Any]
    waiting: dict[TopicPartition, Any]
    _limits: dict[str, int]
    _busy: set[TopicPartition]
    def __init__(
        self,
        gate: _Gate,
        future_type: type[Any],
        batch_size: int,
        buffer_memory: int,
        largest: int,
        wall_ms: Callable[[], int],
        delivery_timeout_ms: int,
        delivery_type: type[Any],
        builder_type: type[RecordEncoder],
        batch_type: type[OpenBatch],
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
    def new_batch(self, tp: TopicPartition, now: int) -> Any: ...
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
