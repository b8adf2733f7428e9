"""The consumer benchmark on a small scale: every client still reads, and the tables say what was measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kadence.broker import Broker
from kadence.testing.kafka import Kafka

ROOT = Path(__file__).resolve().parents[2]
COUNT = 4000


@pytest.fixture(scope="module", autouse=True)
def _bench_on_path() -> Iterator[None]:
    """The benchmarks are programs beside each other, not a package."""
    sys.path.insert(0, str(ROOT / "bench"))
    yield
    sys.path.remove(str(ROOT / "bench"))


@pytest.fixture(scope="module")
def servers(_bench_on_path: None) -> Iterator[str]:
    from topics import fill

    with Broker() as broker:
        fill(broker.bootstrap_servers, "values-100", 100, COUNT)
        yield broker.bootstrap_servers


@pytest.mark.parametrize(
    "name",
    [
        "kadence",
        "kadence-plain",
        "kadence-arrow",
        "confluent-default",
        "confluent-best",
        "aiokafka",
        "kafka-python",
    ],
)
def test_client_reads_and_is_timed(servers: str, name: str) -> None:
    import clients

    plan = clients.Plan(servers, "values-100", count=1000, seconds=1.0, group=f"bench-{name}", work=1)
    result = clients.run(name, plan, timeout=60.0)
    assert isinstance(result, clients.Result), result
    assert result.records >= 1000 or result.seconds >= 1.0
    assert result.cpu_seconds > 0
    assert result.peak_rss_mb > 10


def test_java_is_timed(kafka: Kafka) -> None:
    import clients
    from topics import fill

    fill(kafka.bootstrap_servers, "bench-100", 100, COUNT)
    command = tuple(kafka.tool_command("org.apache.kafka.tools.ConsumerPerformance"))
    plan = clients.Plan(
        kafka.bootstrap_servers, "bench-100", count=1000, seconds=5.0, group="bench-java", java=command
    )
    result = clients.run("java-classic", plan)
    assert isinstance(result, clients.Result), result
    assert result.records >= 1000


def test_a_client_that_fails_is_a_reason_not_a_crash(servers: str) -> None:
    import clients

    plan = clients.Plan("127.0.0.1:1", "values-100", 1000, 1.0, "g", java=("false",))
    outcome = clients.run("java-classic", plan)
    assert isinstance(outcome, str)
    assert "ended with 1" in outcome


def test_tables(tmp_path: Path) -> None:
    from report import Row, markdown, text_table, write_section

    rows = [
        Row("ours", "", 2_000_000.0, 0.5, 60.0, 1_000_000.0),
        Row("broken", "no route", None, None, None, 1_000_000.0),
    ]
    assert text_table(rows).splitlines()[1:] == [
        "ours      2,000 k                    2.00           0.50           60",
        "broken          –                       –              –            –",
        "broken: no route",
    ]
    assert markdown(rows).splitlines()[2] == "| ours | 2,000 k | 2.00 | 0.50 | 60 |"
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- begin a -->\n<!-- end a -->\n\nThe end.\n")
    write_section(page, "a", "make a", ["first"])
    write_section(page, "a", "make a", ["second"])
    assert page.read_text() == (
        "# Title\n\n<!-- begin a -->\n\nMade by `make a`.\n\nsecond\n\n<!-- end a -->\n\nThe end.\n"
    )
