"""Java's hash codes, and the order in which Java's hash tables give their keys.

Kafka chooses a group's coordinator by a hash code, and the assignor of share groups gives partitions to members in the
order of hash tables. Who wants Kafka's result needs that order. Not done: a bucket with more than seven keys, which
Java turns into a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

__all__ = [
    "JavaMap",
    "in_set",
    "in_table",
    "number_hash",
    "partition_hash",
    "string_hash",
    "timeline_order",
    "topic_hash",
]

K = TypeVar("K")
V = TypeVar("V")

_GOLDEN = -7046029254386353131


def string_hash(text: str) -> int:
    """``String.hashCode``, over UTF-16 units; from 0 to 2³² − 1, where Java has half of it below 0."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value


def number_hash(number: int) -> int:
    """``Integer.hashCode``."""
    return number & 0xFFFFFFFF


def topic_hash(topic_id: bytes) -> int:
    """``Uuid.hashCode`` of Kafka's class."""
    folded = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (folded >> 32) ^ (folded & 0xFFFFFFFF)


def partition_hash(partition: tuple[bytes, int]) -> int:
    """``TopicIdPartition.hashCode``, of the record in Kafka's server."""
    topic_id, number = partition
    return (31 * topic_hash(topic_id) + number) & 0xFFFFFFFF


class JavaMap(dict[K, V], Generic[K, V]):
    """A ``HashMap``; with any values a ``HashSet``. Add keys by `put` and `compute` alone.

    Args:
        hash_of: the hash code of a key. capacity: the argument of Java's constructor.
    """

    __slots__ = ("_capacity", "_first", "_hash_of")

    def __init__(self, hash_of: Callable[[K], int], capacity: int = 16) -> None:
        super().__init__()
        self._hash_of = hash_of
        self._capacity = 1 << max(capacity - 1, 0).bit_length()
        self._first: dict[K, int] = {}
        """Keys that were added before the others of their bucket; the latest has the lowest number."""

    @classmethod
    def for_many(cls, hash_of: Callable[[K], int], count: int) -> JavaMap[K, V]:
        """One that takes ``count`` keys without growing, as Kafka's assignors make it."""
        return cls(hash_of, int((count + 1) / 0.75 + 1))

    def put(self, key: K, value: V) -> None:
        """Add a key, as the last of its bucket; one that is there gets the value, and keeps its place."""
        self[key] = value
        self._grow()

    def compute(self, key: K, value: V) -> V:
        """As ``computeIfAbsent``: add a key as the first of its bucket, or keep it. Returns the value that counts.

        Java makes the table larger before the next such call, and not after this one.
        """
        self._grow()
        if key not in self:
            self[key] = value
            self._first[key] = -len(self._first) - 1
        return self[key]

    def _grow(self) -> None:
        while len(self) > self._capacity * 3 // 4:
            self._capacity *= 2

    def in_order(self) -> list[K]:
        """The keys as Java iterates over them: by bucket, and by their places in it."""
        mask = self._capacity - 1
        hash_of, first = self._hash_of, self._first

        def place(key: K) -> tuple[int, int]:
            code = hash_of(key)
            return (code ^ (code >> 16)) & mask, first.get(key, 0)

        return sorted(self, key=place)


def in_table(hash_of: Callable[[K], int], keys: Iterable[K], capacity: int = 16) -> list[K]:
    """Keys in the order of a ``HashMap`` that they were put into, one after the other."""
    table: JavaMap[K, None] = JavaMap(hash_of, capacity)
    for key in keys:
        table.put(key, None)
    return table.in_order()


def in_set(hash_of: Callable[[K], int], keys: Collection[K], count: int | None = None) -> list[K]:
    """Keys in the order of a ``HashSet`` that was made of a list of them.

    Args:
        count: the keys are some of so many; None: they are all.
    """
    return in_table(hash_of, keys, max(int((len(keys) if count is None else count) / 0.75) + 1, 16))


def timeline_order(names: Iterable[str]) -> list[str]:
    """Names as the coordinator's table of members (``TimelineHashMap``) gives them.

    The table grows with its keys, and never shrinks: this is the order of one that had no more keys than now.
    """
    keys = list(names)
    capacity = 2
    while len(keys) * 3 > capacity * 4:
        capacity *= 2
    shift = 64 - (capacity.bit_length() - 1)
    slots: dict[int, list[str]] = {}
    for key in keys:
        code = string_hash(key)
        signed = code - (1 << 32) if code >= 1 << 31 else code
        slots.setdefault(((signed * _GOLDEN) & 0xFFFFFFFFFFFFFFFF) >> shift, []).append(key)
    return [key for slot in sorted(slots) for key in reversed(slots[slot])]
