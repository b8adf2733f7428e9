"""A mistake in a call, words of its error, and calls that follow the advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

__all__ = ["Call", "Row", "raises"]

Call = Callable[[Any], object]


class Row(NamedTuple):
    wrong: Call
    error: type[Exception]
    advice: str
    right: tuple[Call, ...]
    settings: Mapping[str, Any] = {}


def raises(row: Row, client: Any) -> None:
    with pytest.raises(row.error, match=re.escape(row.advice)):
        row.wrong(client)
