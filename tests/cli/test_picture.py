"""The demo's picture: the group over time, as values, as SVG and as text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kadence.cli.demo import picture
from kadence.cli.demo.timeline import Span, Timeline


@pytest.fixture
def timeline() -> Timeline:
    """Two members for 20 s: one stalls from 4 to 10 s, the other is killed at 12 s, and its partition waits 4 s."""
    line = Timeline({0: 100, 1: 100}, session_ms=3_000)
    line.owns("member-1", [0, 1], 1_000)
    line.owns("member-2", [1], 2_000)
    line.owns("member-1", [0], 2_010)
    for at in range(2_100, 5_000, 100):
        line.worked("member-1", 0, 2, at)
    for at in range(2_100, 13_000, 100):
        line.worked("member-2", 1, 1, at)
    line.stalls_at("member-1", 5_000)
    line.polls_again("member-1", 11_000)
    line.killed("member-2", 13_000)
    line.owns("member-1", [0, 1], 17_000)
    line.worked("member-1", 1, 50, 18_000)
    line.end(21_000)
    return line


def texts_of(drawn: str) -> list[str | None]:
    root = ElementTree.fromstring(drawn)  # noqa: S314 - drawn here
    return [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_who_owned_what(timeline: Timeline) -> None:
    assert timeline.owned == {
        0: [Span("member-1", 1_000, 21_000)],
        1: [
            Span("member-1", 1_000, 2_000),
            Span("member-2", 2_000, 13_000),
            Span("member-1", 17_000, 21_000),
        ],
    }
    assert timeline.waited == {1: Span("member-2", 13_000, 17_000)}
    assert timeline.stalls == [Span("member-1", 5_000, 11_000)]
    assert timeline.members == ["member-1", "member-2"]


def test_the_group_as_svg(timeline: Timeline) -> None:
    drawn = picture.svg(timeline)
    texts = texts_of(drawn)
    assert "member-2: 109 records" in texts
    assert "✕ member-2 killed (SIGKILL)" in texts
    assert "▨ member-1 stays a member without a poll for 6.0 s (session: 3 s)" in texts
    assert "4.0 s" in texts
    assert len(drawn) < 20_000
    assert "href" not in drawn
    assert "delay" not in drawn


def test_the_delays_beside_it(timeline: Timeline) -> None:
    rows = [
        {"carrier": name, "mean_delay": mean, "flights": 5} for name, mean in (("UA", 12.0), ("H&", -3.0))
    ]
    assert {"UA", "H&", "12.0 (5)", "-3.0 (5)"} <= set(texts_of(picture.svg(timeline, rows)))


def test_the_group_as_text(timeline: Timeline) -> None:
    assert picture.text(timeline, columns=20).splitlines() == [
        "Who processed which partition, over 20 s",
        "    0  -111-~~~~~----------",
        "    1  -22222222222-xxx-1--",
        "  1: member-1   2: member-2",
        "  -: nothing to process   ~: its owner does not poll   x: its owner was killed",
    ]
