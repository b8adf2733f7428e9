"""What an error advises, as a row of a table: what is refused, and what is written by the advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from kadence.errors import KafkaError

__all__ = ["REGISTRY", "SERVERS", "Options", "Row", "follow"]

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
REGISTRY = {"value.format": "avro", "schema.registry.url": "http://b:8081"}
Options = Mapping[str, str]


class Row(NamedTuple):
    """``read`` refuses ``wrong`` with an error that says ``advice``, and takes each of ``right``."""

    read: Callable[[Any], object]
    wrong: Any
    advice: str
    right: tuple[Any, ...]


def follow(row: Row, error: type[KafkaError]) -> None:
    """Meet the error, and do what it says."""
    with pytest.raises(error, match=re.escape(row.advice)):
        row.read(row.wrong)
    for right in row.right:
        row.read(right)
