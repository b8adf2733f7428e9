"""Our metrics beside those of Kafka's own client: the same statistics, the same names."""

from __future__ import annotations

import math
import random
import subprocess
from pathlib import Path

from kadence import Consumer, Producer
from kadence.admin import Admin
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


NOT_OURS = {
    # Why: docs/metrics.md, "What Java has and Kadence has not".
    ("app-info", "commit-id"),
    ("app-info", "start-time-ms"),
    ("app-info", "version"),
    ("kafka-metrics-count", "count"),
    ("consumer-metrics", "successful-authentication-no-reauth-total"),
}


Shape = tuple[str, str, str]
"""Group, name, tags."""


def theirs(kafka: Kafka, protocol: str, topic: str) -> set[Shape]:
    lines = java(kafka, "Names.java", kafka.bootstrap_servers, topic, protocol, "10")
    return {(group, name, tags) for group, name, tags, _ in (line.split("\t") for line in lines)}


def ours(kafka: Kafka, protocol: str, topic: str) -> set[Shape]:
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"ours-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(topic)
        read = 0
        while read < 10:
            records = consumer.poll(timeout=30)
            assert records
            read += len(records)
        return {(name.group, name.name, ",".join(sorted(name.tags))) for name in consumer.metrics()}


def test_every_metric_of_kafkas_consumers_has_its_name_here_or_its_reason_in_the_document(
    kafka: Kafka,
) -> None:
    topic = "names-of-metrics"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({topic: 1})
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send(topic, b"value")
    all_theirs: set[Shape] = set()
    all_ours: set[Shape] = set()
    for protocol in ("classic", "consumer"):
        java_has = theirs(kafka, protocol, topic)
        assert len(java_has) > 100
        we_have = ours(kafka, protocol, topic)
        missing = {row for row in java_has - we_have if row[:2] not in NOT_OURS}
        assert not missing, "\n".join(map(str, sorted(missing)))
        all_theirs |= java_has
        all_ours |= we_have
    assert {group for group, _, _ in all_ours - all_theirs} == {"kadence-consumer-metrics"}
    document = (HERE.parents[1] / "docs" / "metrics.md").read_text()
    for _, name in NOT_OURS:
        assert f"`{name}`" in document, f"docs/metrics.md does not say why {name} is missing"
