"""`Records`, the result of a poll: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from kadence.compiled import compiled
from kadence.consumer.decoded_records import COMPILED
from kadence.typevars import K_co, V_co

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from kadence.records import Record
    from kadence.types import OffsetAndMetadata, TopicPartition

    K = TypeVar("K")
    V = TypeVar("V")

    class Records(Generic[K_co, V_co]):
        """The types of `_polled_records.Records`: a compiled class cannot be generic."""

        def __init__(
            self,
            chunks: Sequence[tuple[TopicPartition, list[Record[K_co, V_co]]]] = (),
            moved: Mapping[TopicPartition, OffsetAndMetadata] = ...,
        ) -> None: ...
        @classmethod
        def of(cls, records: Iterable[Record[K, V]]) -> Records[K, V]: ...
        def __iter__(self) -> Iterator[Record[K_co, V_co]]: ...
        def __len__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def by_partition(self) -> dict[TopicPartition, list[Record[K_co, V_co]]]: ...
        def partitions(self) -> frozenset[TopicPartition]: ...
        def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def intercept(
        interceptors: Any, consuming: tuple[Any, ...], given: Records[Any, Any]
    ) -> Records[Any, Any]:
        """See `_polled_records.intercept`."""

elif (_compiled := compiled("kadence.consumer._polled_records_c") if COMPILED else None) is None:
    from kadence.consumer._polled_records import Records, intercept
else:
    Records, intercept = _compiled.Records, _compiled.intercept

__all__ = ["Records", "intercept"]
