"""Our metrics beside those of Kafka's own client: the same statistics, the same names."""

from __future__ import annotations

import math
import random
import subprocess
from pathlib import Path

from kadence.metrics.sensors import Meter
from kadence.testing.kafka import Kafka

HERE = Path(__file__).parent


def java(kafka: Kafka, program: str, *arguments: str, stdin: str = "") -> list[str]:
    """What a Java program beside this file prints, with Kafka's jars at hand."""
    command = kafka.tool_command("PROGRAM", *arguments)
    command[command.index("PROGRAM")] = str(HERE / program)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def same(ours: float, theirs: float) -> bool:
    return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=1e-9)


def test_rates_averages_and_extremes_are_those_of_kafkas_sampled_statistics(kafka: Kafka) -> None:
    rng = random.Random(4)
    steps = (0, 1, 10, 500, 3_000, 9_000, 29_999, 30_000, 30_001, 59_999, 60_000, 61_000)
    lines, ours = [], []
    for _ in range(300):
        now = rng.randrange(10_000)
        words: list[int] = []
        meter = Meter()
        for _ in range(rng.randrange(1, 40)):
            now += rng.choice(steps) if rng.random() < 0.3 else rng.randrange(4_000)
            value = rng.randrange(1_000)
            words += [now, value]
            meter.record(now, value)
        now += rng.choice(steps)
        ours.append(
            (meter.rate(now), meter.frequency(now), meter.average(now), meter.highest(now), meter.lowest(now))
        )
        lines.append(" ".join(map(str, [*words, now])))
    said = java(kafka, "Stats.java", stdin="\n".join(lines) + "\n")
    assert len(said) == len(ours)
    for line, mine, answer in zip(lines, ours, said, strict=True):
        theirs = [float(word) for word in answer.split()]
        assert all(map(same, mine, theirs)), f"{line}: {mine} is not {theirs}"
