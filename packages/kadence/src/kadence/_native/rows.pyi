from typing import Any, TypeAlias, final

from kadence._native.append import FastAppender, OpenBatch, TopicInfo

# `kadence.producer.columns` has the classes of columns, which are not known here.
_Strings: TypeAlias = Any
_Numbers: TypeAlias = Any

@final
class Rows:
    def __init__(
        self,
        count: int,
        value: _Strings,
        key: _Strings | None = None,
        headers: tuple[_Numbers, _Strings, _Strings] | None = None,
        partitions: _Numbers | None = None,
        timestamps: _Numbers | None = None,
        topics: _Numbers | None = None,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    def estimate(self, row: int) -> int: ...
    def partition(self, row: int) -> int | None: ...
    def topic(self, row: int) -> int | None: ...
    def assign(
        self, places: list[TopicInfo], bases: list[int], lanes: memoryview, largest: int
    ) -> tuple[int, str] | None: ...
    def hand_over(
        self,
        appender: FastAppender,
        lanes: memoryview,
        row: int,
        batches: list[OpenBatch | None],
        now: int,
        most: int,
    ) -> tuple[int, list[tuple[int, OpenBatch, int, int, int]]]: ...
