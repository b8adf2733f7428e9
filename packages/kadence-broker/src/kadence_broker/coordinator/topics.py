"""The interface through which the coordinator looks up topics; its owner implements it with its cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["TopicImage", "TopicImages", "TopicTable"]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.

    Attributes:
        partitions: the number of its partitions.
        racks: for each partition, the racks with a replica of it; empty if racks are not known.
    """

    name: str
    topic_id: bytes
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


class TopicImages(Protocol):
    """The topics of the cluster. They change between two steps of the coordinator, never within one."""

    @property
    def version(self) -> int:
        """A number that rises with every change."""

    def by_name(self, name: str) -> TopicImage | None: ...

    def by_id(self, topic_id: bytes) -> TopicImage | None: ...

    def names(self) -> Iterable[str]: ...


class TopicTable:
    """`TopicImages` as a plain table, for simulations."""

    def __init__(self, images: Iterable[TopicImage] = ()) -> None:
        self.version = 0
        self._by_name = {image.name: image for image in images}

    def put(self, image: TopicImage) -> None:
        """Add a topic, or change it."""
        self._by_name[image.name] = image
        self.version += 1

    def remove(self, name: str) -> None:
        del self._by_name[name]
        self.version += 1

    def by_name(self, name: str) -> TopicImage | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> TopicImage | None:
        return next((image for image in self._by_name.values() if image.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._by_name.keys()
