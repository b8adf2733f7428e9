"""Which version of an API to speak: what both sides know, the higher the better (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from kadence.errors import UnsupportedVersionError
from kadence.protocol.metadata import MetadataRequest

if TYPE_CHECKING:
    from kadence.connection.request import Request

__all__ = ["Ranges", "choose", "common", "ranges_of"]

Ranges = Mapping[int, tuple[int, int]]
"""Per API key, the lowest and the highest version that a broker offers."""


class OfferedApi(Protocol):
    """One line of an ApiVersions answer."""

    api_key: int
    min_version: int
    max_version: int


def ranges_of(offered: Iterable[OfferedApi]) -> dict[int, tuple[int, int]]:
    """The ranges of an ApiVersions answer."""
    return {api.api_key: (api.min_version, api.max_version) for api in offered}


def common(ours: tuple[int, int], theirs: tuple[int, int]) -> int | None:
    """The highest version in both ranges (inclusive), None when they do not meet."""
    low, high = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    return high if low <= high else None


def choose(request: Request, ranges: Ranges, address: str) -> int:
    """The version for one request.

    Raises:
        UnsupportedVersionError: the broker lacks the API, or the ranges do not meet.
    """
    message = request.message
    low: int = message.MIN_VERSION if request.min_version is None else request.min_version
    high: int = message.MAX_VERSION if request.max_version is None else request.max_version
    low, high = max(low, message.MIN_VERSION), min(high, message.MAX_VERSION)
    theirs = ranges.get(message.API_KEY)
    if theirs is None:
        # Every broker answers Metadata; a controller of KRaft does not.
        advice = (
            "is this a controller's port? Clients need a broker's"
            if message.API_KEY == MetadataRequest.API_KEY
            else "a newer broker, or another setting of this client, is needed"
        )
        raise UnsupportedVersionError(
            f"broker {address} does not offer {request.name} (API key {message.API_KEY}); {advice}"
        )
    version = common((low, high), theirs)
    if version is None:
        raise UnsupportedVersionError(
            f"broker {address} offers {request.name} in versions {theirs[0]} to {theirs[1]}, "
            f"this call needs {low} to {high}"
        )
    return version
