"""Spark's zones for the compiled JSON reader: how far their local times are ahead of UTC, as a table."""

from __future__ import annotations

import struct
from bisect import bisect_left
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kadence.columns.json_rows import NO_ZONE, JsonRows, Zone
from kadence.columns.json_rows import rows_reader as any_reader
from kadence_spark.decode.json_shapes import has_zoned_times
from kadence_spark.decode.json_times import offset_at

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["rows_reader"]


def rows_reader(target: pa.DataType, zone: tzinfo | None) -> JsonRows | None:
    """The compiled reader for a type, which takes what it is certain that `json_shapes` makes the same of; None: none.

    Args:
        zone: of times that name none; None: such records are refused.
    """
    return any_reader(target, _table_of(zone if has_zoned_times(target) else None))


_FIRST, _END = -719_162 * 86_400, 2_932_897 * 86_400
"""The years from 1 to 9999, which are all that the reader knows."""

_WEEK: Final = 7 * 86_400
_KNOWN_FROM, _KNOWN_TO = 0, 4_226 * _WEEK
"""1970 to 2050, of a region's zone; times outside of it are for the reader behind this one."""


@lru_cache(maxsize=16)
def _table_of(zone: tzinfo | None) -> Zone:
    """What the compiled reader needs to know of a zone. No zone has changed twice within a week since 1970."""
    if zone is None:
        return NO_ZONE
    if isinstance(zone, timezone):
        return _zone([_FIRST, _END], [offset_at(zone, 0, 0)])
    starts, offsets = [_KNOWN_FROM], [offset_at(zone, 0, 0)]
    at = datetime(1970, 1, 1, tzinfo=zone)
    week, before = timedelta(days=7), at.utcoffset()
    for end in range(_KNOWN_FROM + _WEEK, _KNOWN_TO + 1, _WEEK):
        at += week
        after = at.utcoffset()
        if after != before:
            within = range(end - _WEEK, end + 1)
            changed = bisect_left(within, True, key=lambda second: offset_at(zone, 0, second) != offsets[-1])
            starts.append(within[changed])
            offsets.append(offset_at(zone, 0, end))
            before = after
    return _zone([*starts, _KNOWN_TO], offsets)


def _zone(starts: list[int], offsets: list[int]) -> Zone:
    return Zone(struct.pack(f"<{len(starts)}q", *starts), struct.pack(f"<{len(offsets)}i", *offsets))
