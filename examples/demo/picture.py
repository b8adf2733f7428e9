"""Draws the group over time, as SVG and as text, and the delays by carrier. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from examples.demo.timeline import Span, Timeline

__all__ = ["svg", "text"]

_COLORS: Final = ("#2f6db0", "#e08a1e", "#3f9b6c", "#8a5fb0", "#b05f77")
_INK: Final = "#24292f"
_PALE: Final = "#6b7480"
_RED: Final = "#c62f2f"
_LANE: Final = 38
_GAP: Final = 8
_TOP: Final = 96
_LEFT: Final = 112
_GROUP_WIDTH: Final = 560
_DELAYS_WIDTH: Final = 330
_BUCKETS: Final = 80
_BUCKET_MS: Final = 500
"""The shortest time of a bar: members report every 0.1 s or less often, so shorter bars would have gaps."""
_STYLE: Final = (
    f"text{{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:{_INK}}}"
    f".t{{font-size:15px;font-weight:600}}.p{{fill:{_PALE};font-size:11px}}.r{{fill:{_RED};font-weight:600}}"
)


def svg(timeline: Timeline, by_carrier: Sequence[dict[str, Any]] = ()) -> str:
    """One picture without references to other files: the group over time, and the delays if there are any.

    Args:
        by_carrier: rows with ``carrier``, ``mean_delay`` (minutes) and ``flights``.
    """
    lanes = len(timeline.sizes) * (_LANE + _GAP)
    height = _TOP + lanes + 52
    width = _LEFT + _GROUP_WIDTH + 24 + (_DELAYS_WIDTH + 16 if by_carrier else 0)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">'
    )
    hatch = (
        '<defs><pattern id="h" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0V7" stroke="{_INK}" stroke-width="2" stroke-opacity=".55"/></pattern></defs>'
    )
    parts = [
        head,
        "<title>A Kafka consumer group over time: who owned and processed each partition</title>",
        f"<style>{_STYLE}</style>",
        hatch,
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>',
        *_group(timeline),
        *(_delays(by_carrier, _LEFT + _GROUP_WIDTH + 40, lanes) if by_carrier else ()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# ---------------------------------------------------------------- the group


class _Scale:
    """Monotonic ms to a place on the horizontal axis."""

    def __init__(self, timeline: Timeline) -> None:
        self._began = timeline.began
        self.length = max(1, timeline.ended - timeline.began)

    def x(self, at: int) -> float:
        share = (min(max(at, self._began), self._began + self.length) - self._began) / self.length
        return round(_LEFT + share * _GROUP_WIDTH, 1)


def _group(timeline: Timeline) -> list[str]:
    scale = _Scale(timeline)
    members = timeline.members
    color = {member: _COLORS[number % len(_COLORS)] for number, member in enumerate(members)}
    partitions = sorted(timeline.sizes)
    top = {partition: _TOP + number * (_LANE + _GAP) for number, partition in enumerate(partitions)}
    bottom = _TOP + len(partitions) * (_LANE + _GAP) - _GAP
    parts = [
        f'<text class="t" x="16" y="28">{len(members)} consumers, one group: records processed over time</text>'
    ]
    at = 16
    for member in members:
        count = sum(work.count for work in timeline.work if work.member == member)
        label = f"{member}: {count:,} records"
        parts.append(f'<rect x="{at}" y="40" width="11" height="11" rx="2" fill="{color[member]}"/>')
        parts.append(f'<text x="{at + 16}" y="50">{escape(label, quote=False)}</text>')
        at += 34 + 7 * len(label)
    for partition in partitions:
        y = top[partition]
        parts.append(f'<text x="16" y="{y + 16}">partition {partition}</text>')
        parts.append(f'<text class="p" x="16" y="{y + 30}">{timeline.sizes[partition]:,} records</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{_GROUP_WIDTH}" height="{_LANE}" fill="#f1f3f5"/>')
        parts += [
            _band(scale, span, y, f'fill="{color[span.member]}" fill-opacity=".2"')
            for span in timeline.owned.get(partition, ())
        ]
    parts += _work(timeline, scale, top, color)
    for stall in timeline.stalls:
        parts += _stall(timeline, scale, stall, top)
    for partition, span in timeline.waited.items():
        y = top[partition]
        parts.append(_band(scale, span, y, f'fill="#fff" stroke="{_RED}" stroke-dasharray="3 2"'))
        if scale.x(span.end) - scale.x(span.start) > 40:
            middle = (scale.x(span.start) + scale.x(span.end)) / 2
            seconds = (span.end - span.start) / 1000
            parts.append(
                f'<text class="r" x="{middle:.0f}" y="{y + 24}" text-anchor="middle">{seconds:.1f} s</text>'
            )
    for member, killed_at in timeline.kills:
        x = scale.x(killed_at)
        parts.append(f'<path d="M{x} {_TOP - 6}V{bottom}" stroke="{_RED}" stroke-width="2"/>')
        parts.append(_above(x, _TOP - 10, f"✕ {member} killed (SIGKILL)", "r"))
    parts += _seconds(scale, bottom)
    parts.append(
        f'<text class="p" x="{_LEFT}" y="{bottom + 38}">pale: owned; solid: records per second; hatched: its owner '
        "does not poll; dashed: no owner</text>"
    )
    return parts


def _work(timeline: Timeline, scale: _Scale, top: dict[int, int], color: dict[str, str]) -> list[str]:
    """Records per second as steps within each lane, one path for each member of it."""
    buckets = max(1, min(_BUCKETS, scale.length // _BUCKET_MS))
    step = scale.length / buckets
    counts: Counter[tuple[int, str, int]] = Counter()
    for work in timeline.work:
        bucket = min(buckets - 1, max(0, int((work.at - timeline.began) / step)))
        counts[work.partition, work.member, bucket] += work.count
    most = max(counts.values(), default=1)
    width = _GROUP_WIDTH / buckets
    paths: dict[tuple[int, str], list[str]] = {}
    for (partition, member, bucket), count in sorted(counts.items()):
        height = max(1.5, _LANE * count / most)
        x, y = _LEFT + bucket * width, top[partition] + _LANE
        paths.setdefault((partition, member), []).append(
            f"M{x:.1f} {y}v-{height:.1f}h{width:.1f}v{height:.1f}z"
        )
    return [f'<path d="{"".join(path)}" fill="{color[member]}"/>' for (_, member), path in paths.items()]


def _stall(timeline: Timeline, scale: _Scale, stall: Span, top: dict[int, int]) -> list[str]:
    """The stall, on the partitions of its member, with a label above them."""
    parts = []
    for partition, spans in timeline.owned.items():
        for span in spans:
            start, end = max(span.start, stall.start), min(span.end, stall.end)
            if span.member == stall.member and start < end:
                parts.append(_band(scale, Span(span.member, start, end), top[partition], 'fill="url(#h)"'))
    seconds, session = (stall.end - stall.start) / 1000, timeline.session_ms / 1000
    said = f"▨ {stall.member} stays a member without a poll for {seconds:.1f} s (session: {session:g} s)"
    x, right = scale.x(stall.start), scale.x(stall.end)
    parts.append(f'<path d="M{x} {_TOP - 3}V{_TOP - 8}H{right}V{_TOP - 3}" fill="none" stroke="{_INK}"/>')
    parts.append(_above(x, _TOP - 26, said, ""))
    return parts


def _above(x: float, y: int, said: str, kind: str) -> str:
    """A text that begins at ``x``, or ends there if it would not fit."""
    is_right = x + 6.6 * len(said) > _LEFT + _GROUP_WIDTH
    anchor = ' text-anchor="end"' if is_right and x - 6.6 * len(said) > 0 else ""
    if is_right and not anchor:
        x = 16
    return f'<text class="{kind}" x="{x}" y="{y}"{anchor}>{escape(said, quote=False)}</text>'


def _seconds(scale: _Scale, bottom: int) -> list[str]:
    seconds = scale.length / 1000
    step = next((each for each in (1, 2, 5, 10, 20, 30, 60) if seconds / each <= 10), 120)
    parts = []
    for number in range(int(seconds // step) + 1):
        x = _LEFT + number * step / seconds * _GROUP_WIDTH
        parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{_PALE}"/>')
        unit = " s" if number == 0 else ""
        parts.append(
            f'<text class="p" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{number * step}{unit}</text>'
        )
    return parts


def _band(scale: _Scale, span: Span, y: int, how: str) -> str:
    x, end = scale.x(span.start), scale.x(span.end)
    return f'<rect x="{x}" y="{y}" width="{round(end - x, 1)}" height="{_LANE}" {how}/>'


# ---------------------------------------------------------------- the delays


def _delays(rows: Sequence[dict[str, Any]], left: int, height: int) -> list[str]:
    """Mean departure delays as bars, longest first."""
    ordered = sorted(rows, key=lambda row: -row["mean_delay"])
    lowest = min(0.0, *(row["mean_delay"] for row in ordered))
    highest = max(1.0, *(row["mean_delay"] for row in ordered))
    room = _DELAYS_WIDTH - 150
    zero = left + 36 + room * -lowest / (highest - lowest)
    pitch = (height + _TOP - 66) / len(ordered)
    parts = [
        f'<text class="t" x="{left}" y="28">Landed by Spark: delay by carrier</text>',
        f'<text class="p" x="{left}" y="50">mean departure delay in minutes (departures)</text>',
    ]
    for number, row in enumerate(ordered):
        y, mean = 66 + number * pitch, row["mean_delay"]
        length = room * abs(mean) / (highest - lowest)
        x = zero if mean >= 0 else zero - length
        middle = y + pitch / 2 + 3
        parts.append(f'<text x="{left}" y="{middle:.1f}">{escape(str(row["carrier"]), quote=False)}</text>')
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{length:.1f}" height="{pitch * 0.72:.1f}" fill="#30638e"/>'
        )
        told = f"{mean:.1f} ({row['flights']:,})"
        parts.append(f'<text class="p" x="{max(zero, x + length) + 5:.1f}" y="{middle:.1f}">{told}</text>')
    return parts


# ---------------------------------------------------------------- text


def text(timeline: Timeline, columns: int = 64) -> str:
    """The group over time for a terminal: a line for each partition, a column for each piece of time.

    A column has the number of the member that processed records then, ``~`` while the owner does not poll, ``x``
    while the partition waits because its owner was killed, ``-`` while its owner has nothing to process.
    """
    number = {member: member.rpartition("-")[2][-1:] for member in timeline.members}
    step = max(1, timeline.ended - timeline.began) / columns
    lines = {partition: [" "] * columns for partition in sorted(timeline.sizes)}

    def fill(partition: int, start: int, end: int, mark: str) -> None:
        first = max(0, int((start - timeline.began) / step))
        for column in range(first, min(columns, int((end - timeline.began) / step) + 1)):
            lines[partition][column] = mark

    for partition, spans in timeline.owned.items():
        for span in spans:
            fill(partition, span.start, span.end, "-")
    for work in timeline.work:
        fill(work.partition, work.at, work.at, number[work.member])
    for stall in timeline.stalls:
        for partition, spans in timeline.owned.items():
            for span in spans:
                start, end = max(span.start, stall.start), min(span.end, stall.end)
                if span.member == stall.member and start + step < end:
                    fill(partition, int(start + step), int(end - step), "~")
    for partition, span in timeline.waited.items():
        if span.start + step < span.end:
            fill(partition, int(span.start + step), int(span.end - step), "x")
    shown = [f"Who processed which partition, over {(timeline.ended - timeline.began) / 1000:.0f} s"]
    shown += [f"  {partition:>3}  {''.join(line).rstrip()}" for partition, line in lines.items()]
    shown.append("  " + "   ".join(f"{number[member]}: {member}" for member in timeline.members))
    said = {"-": "nothing to process", "~": "its owner does not poll", "x": "its owner was killed"}
    shown.append("  " + "   ".join(f"{mark}: {meaning}" for mark, meaning in said.items()))
    return "\n".join(shown)
