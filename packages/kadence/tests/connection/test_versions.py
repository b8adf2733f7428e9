"""The choice of a version is one pure function."""

from __future__ import annotations

import pytest

from kadence.clock import FOREVER
from kadence.connection.request import Request, choose, common, ranges_of
from kadence.errors import UnsupportedVersionError
from kadence.protocol.api_versions import ApiVersion, ApiVersionsRequest
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.metadata import MetadataRequest

FETCH = FetchRequest.API_KEY


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [
        ((0, 4), (0, 9), 4),
        ((0, 9), (0, 4), 4),
        ((3, 5), (0, 3), 3),
        ((3, 5), (5, 9), 5),
        ((3, 5), (6, 9), None),
        ((3, 5), (0, 2), None),
    ],
)
def test_the_highest_in_common(ours: tuple[int, int], theirs: tuple[int, int], version: int | None) -> None:
    assert common(ours, theirs) == version


def test_ranges_of_an_answer() -> None:
    assert ranges_of([ApiVersion(api_key=1, min_version=4, max_version=17)]) == {1: (4, 17)}


def test_a_request_may_narrow_its_versions() -> None:
    ranges = {FETCH: (4, 17)}
    assert choose(Request(FetchRequest(), 1, FOREVER), ranges, "b") == 17
    assert choose(Request(FetchRequest(), 1, FOREVER, max_version=12), ranges, "b") == 12
    assert choose(Request(FetchRequest(), 1, FOREVER, max_version=99), ranges, "b") == 17
    with pytest.raises(
        UnsupportedVersionError,
        match=r"broker kafka:9092 offers Fetch in versions 4 to 17, this call needs 18 to 18",
    ):
        choose(Request(FetchRequest(), 1, FOREVER, min_version=18), ranges, "kafka:9092")


def test_an_api_that_is_not_offered() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"does not offer Fetch \(API key 1\)"):
        choose(Request(FetchRequest(), 1, FOREVER), {}, "kafka:9092")


def test_a_controller_of_kraft_tells_no_metadata() -> None:
    ranges = {FETCH: (4, 17), ApiVersionsRequest.API_KEY: (0, 4), DescribeClusterRequest.API_KEY: (0, 2)}
    asked = r"does not offer Metadata \(API key 3\); is this a controller's port\? Clients need a broker's$"
    with pytest.raises(UnsupportedVersionError, match=asked):
        choose(Request(MetadataRequest(), 1, FOREVER), ranges, "kafka:9093")
