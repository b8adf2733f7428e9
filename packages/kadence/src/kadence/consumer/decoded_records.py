"""The types of `_decoded_records`, where `Records` is generic: a compiled class cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from kadence.types import K_co, V_co

__all__ = ["Attention", "DecodedRecords", "Decoder", "DeliveryState", "Records", "intercept"]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from kadence.consumer._decoded_records import Attention, DecodedRecords, Decoder, DeliveryState
    from kadence.records import Record
    from kadence.types import OffsetAndMetadata, TopicPartition

    K = TypeVar("K")
    V = TypeVar("V")

    class Records(Generic[K_co, V_co]):
        """The types of `_decoded_records.Records`: a compiled class cannot be generic."""

        def __init__(
            self,
            chunks: Sequence[tuple[TopicPartition, list[Record[K_co, V_co]]]] = (),
            moved: Mapping[TopicPartition, OffsetAndMetadata] = ...,
        ) -> None: ...
        @classmethod
        def of(cls, records: Iterable[Record[K, V]]) -> Records[K, V]: ...
        def __iter__(self) -> Iterator[Record[K_co, V_co]]: ...
        @overload
        def __getitem__(self, index: int) -> Record[K_co, V_co]: ...
        @overload
        def __getitem__(self, index: slice) -> list[Record[K_co, V_co]]: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __len__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def by_partition(self) -> dict[TopicPartition, list[Record[K_co, V_co]]]: ...
        def partitions(self) -> frozenset[TopicPartition]: ...
        def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def intercept(
        interceptors: Any, consuming: tuple[Any, ...], given: Records[Any, Any]
    ) -> Records[Any, Any]:
        """See `_decoded_records.intercept`."""


else:
    from kadence.consumer._decoded_records import (
        Attention,
        DecodedRecords,
        Decoder,
        DeliveryState,
        Records,
        intercept,
    )
