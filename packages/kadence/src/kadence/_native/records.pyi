from collections.abc import Iterable
from typing import Any, Generic, final

from typing_extensions import Buffer

from kadence.types import K_co, MaybeNone, V_co

def crc32c(data: Buffer, crc: int = 0, *, portable: bool = False) -> int: ...
def crc32c_kernel() -> str: ...
def scan(data: Buffer, fetch_offset: int) -> tuple[int, int, int]: ...

@final
class Record(Generic[K_co, V_co]):
    """One record. Immutable, hashable, picklable; equality is by value.

    ``Record[str, Order]`` has keys that are strings and values that are orders.

    Attributes:
        topic: name of the topic. partition: its partition.
        offset: place in the partition.
        timestamp: milliseconds since 1970 UTC, -1 when the record has none.
        timestamp_type: 0 set by the producer, 1 by the broker, -1 none.
        key: bytes or None; the deserialiser's result if one is configured.
        value: as key.
        headers: tuple of (str, bytes or None); a name that is not UTF-8 has U+FFFD in place of what is wrong.
        leader_epoch: epoch of the leader that wrote it, None when unknown.
        delivery_count: how often a queue has delivered it, this time included; None when no queue has.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: K_co | None = None,
        value: V_co | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> K_co | MaybeNone: ...
    @property
    def value(self) -> V_co | MaybeNone: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def delivery_count(self) -> int | None: ...
    def _fields(self) -> tuple[Any, ...]: ...
    def replace(self, **changes: Any) -> Record[Any, Any]: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

def set_delivery_count(records: list[Record[Any, Any]], delivery_count: int) -> None: ...

class Cursor:
    next_offset: int
    leader_epoch: int | None
    after: int
    def __init__(self, topic: str, partition: int) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def remaining(self) -> int: ...
    @property
    def after_offset(self) -> int: ...
    def close_batch(self) -> None: ...
    def open_batch(
        self,
        data: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset: int,
        first_wanted: int,
        base_timestamp: int,
        timestamp_type: int,
        append_time: int,
        leader_epoch: int,
        after: int,
        goes_on: bool,
        check_crcs: bool,
    ) -> None: ...
    def read(self, out: list[Record[Any, Any]], limit: int, room: int = ...) -> int: ...
