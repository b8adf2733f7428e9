"""`make bench` on a small scale: every row still runs every client, and says what came out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kadence_testing.kafka import Kafka

if TYPE_CHECKING:
    from harness.ground import Ground
    from harness.plan import Line, Options, Outcome, Plan

pytestmark = pytest.mark.heavy

BENCH = Path(__file__).resolve().parents[2] / "bench"
RECORDS = 100_000
"""More than a client fetches ahead: the first poll, of whatever size, is not timed."""
SERVE = """
import sys
from kadence_broker import Broker

with Broker() as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""
CLIENTS = ("kadence", "confluent", "aiokafka")


@pytest.fixture(scope="module", autouse=True)
def _bench_on_path() -> Iterator[None]:
    """The benchmarks are programs, and no part of the package."""
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def ground(_bench_on_path: None) -> Iterator[Ground]:
    """A broker in a process of its own: some rows keep this one's interpreter busy."""
    from harness.ground import Ground

    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield Ground(server.stdout.readline().strip())
        server.communicate()


@pytest.fixture
def options() -> Options:
    from harness.plan import Options

    return Options(records=RECORDS, seconds=0.2, rounds=1, lines=CLIENTS)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients run in this process, which is faster; those that need an environment of their own are left out.

    kafka-python keeps a process of its own: it leaves sockets behind, which a later test would be blamed for.
    """
    from harness import children

    in_a_process = children.run

    def run(row: str, name: str, line: Line, plan: Plan, timeout: float = 30.0) -> Outcome:
        if name == "kafka-python":
            # It may be long in joining on a busy machine, and how fast it is is not asked here.
            return in_a_process(row, name, line, plan, 4 * timeout)
        if line.environment:
            return "needs a process of its own"
        try:
            return line.run(plan)
        except SystemExit as reason:
            return str(reason)

    monkeypatch.setattr(children, "run", run)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "name",
    [
        "polls",
        *(
            pytest.param(name, marks=pytest.mark.heavy)
            for name in ("arrow", "work", "iteration", "iteration_settings", "iteration_async")
        ),
    ],
)
def test_rows_that_read_a_topic(ground: Ground, options: Options, name: str) -> None:
    import importlib

    row = importlib.import_module(f"rows.{name}").ROW
    if name == "polls":
        options = replace(options, lines=(*CLIENTS, "kafka-python"))
    tables, goals = row.measure(ground, options)
    clients = [line.title for key, line in row.lines.items() if options.wants(key)]
    for table in tables:
        assert [line[0] for line in table.lines] == clients
        # A large buffer holds this small topic at once, and nothing is left to be timed.
        expected = ("needs a process of its own", "the records ended before")
        # On a busy machine kafka-python may not have joined within the time of a run; that is not ours to test.
        ours = [failure for failure in table.failures if not failure.startswith("kafka-python")]
        assert all(any(reason in failure for reason in expected) for failure in ours)
        for line in table.lines:
            measured = line[1] != "–"
            assert measured or any(failure.startswith(line[0]) for failure in table.failures)
    # Java was not among the clients, so what is promised beside it cannot be told.
    assert all((goal.is_kept is None) == ("Java" in goal.promised) for goal in goals)


@pytest.mark.heavy
@pytest.mark.usefixtures("here")
def test_writing(ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from rows import produce

    monkeypatch.setattr(produce, "PAUSE", 0.0)
    tables, goals = produce.measure(ground, options)
    for table in tables:
        assert not table.failures
        assert all(float(line[3]) > 0 for line in table.lines)
    # All but kafka-python; and with headers, a serialiser, an event loop and two codecs a peer beside us.
    assert [len(table.lines) for table in tables] == [7, 7, 2, 2, 2, 2, 2]
    assert all(goal.is_kept is not None for goal in goals)


@pytest.mark.heavy
@pytest.mark.usefixtures("here")
def test_many_topics(ground: Ground, options: Options) -> None:
    from rows import many_topics

    (table,), goals = many_topics.measure(ground, options, 30)
    assert not table.failures
    assert [len(line) for line in table.lines] == [7, 7]
    assert all(float(line[4]) > 0 for line in table.lines)
    assert [goal.is_kept is not None for goal in goals] == [True, True]


@pytest.mark.usefixtures("here")
def test_commits(ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from rows import commits

    monkeypatch.setattr(commits, "MANY", 100)
    tables, goals = commits.measure(ground, options)
    # All but kafka-python.
    assert [len(table.lines) for table in tables] == [4, 2]
    for table in tables:
        assert not table.failures
        assert all(float(line[2]) > 0 for line in table.lines)
    assert not goals


@pytest.mark.usefixtures("here")
def test_round_trips(ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from rows import roundtrips

    monkeypatch.setattr(roundtrips, "CALLS", 20)
    tables, goals = roundtrips.measure(ground, options)
    # All but kafka-python.
    assert [len(table.lines) for table in tables] == [4, 2, 2]
    for table in tables:
        assert not table.failures
        assert all(float(line[2]) > 0 for line in table.lines)
    assert not goals


@pytest.mark.heavy
@pytest.mark.usefixtures("here")
def test_queues(ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from rows import share, share_idle, share_work

    monkeypatch.setattr(share_work, "BACKLOG", 20_000)
    monkeypatch.setattr(share_idle, "CONSUMERS", 2)
    tables, goals = share.measure(ground, options)
    assert [(len(table.lines), table.failures) for table in tables] == [
        (2, []),
        (2, []),
        (3, []),
        (3, []),
        (2, []),
        (2, []),
        (2, []),
    ]
    # Java was not among the clients.
    assert [goal.what for goal in goals if (goal.is_kept is None) != ("Java" in goal.promised)] == []


@pytest.mark.heavy
def test_a_queue_of_java_is_timed(kafka: Kafka, options: Options) -> None:
    from harness import children, share, topics
    from harness.plan import Plan
    from rows import share as row

    topics.fill(kafka.bootstrap_servers, "share-java", 100, RECORDS)
    share.from_the_start(kafka.bootstrap_servers, "bench-share-java")
    with share.java_command() as java:
        plan = Plan(
            kafka.bootstrap_servers,
            "share-java",
            "bench-share-java",
            count=RECORDS // 2,
            seconds=options.seconds,
            java=java,
        )
        outcome = children.run("share", "java-explicit", row.EXPLICIT_LINES["java-explicit"], plan)
    assert isinstance(outcome, dict), outcome
    assert outcome["records"] > 0


@pytest.mark.usefixtures("here")
def test_single_polls(ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from rows import single

    monkeypatch.setattr(single, "FILL_SECONDS", 0.1)
    (table,), (goal,) = single.measure(ground, options)
    assert not table.failures
    assert len(table.lines) == 4
    assert goal.is_kept is not None


@pytest.mark.usefixtures("here")
def test_latency(ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from rows import latency

    monkeypatch.setattr(latency, "WARM_SECONDS", 0.0)
    tables, goals = latency.measure(ground, options)
    assert [table.failures for table in tables] == [[], []]
    assert all(goal.is_kept is not None for goal in goals)
    for table in tables:
        for _client, p50, p99, first, _rate in table.lines:
            assert 0 < float(p50) <= float(p99) + 0.05
            assert float(first) > 0


@pytest.mark.usefixtures("here")
@pytest.mark.heavy
@pytest.mark.parametrize("name", ["idle", "partitions"])
def test_idle_consumers(ground: Ground, options: Options, name: str) -> None:
    from rows import idle, partitions

    measure = {"idle": idle.measure, "partitions": partitions.measure}[name]
    (table,), (goal,) = measure(ground, options, 3)
    assert not table.failures
    assert len(table.lines) == 3
    assert goal.is_kept is not None


def test_starts(ground: Ground, options: Options, here: None) -> None:
    from rows import start

    tables, (goal,) = start.measure(ground, options, 1)
    assert [table.failures for table in tables] == [[], [], []]
    assert [len(table.lines) for table in tables] == [6, 3, 2]
    assert goal.is_kept is not None


def test_a_member_that_holds_the_interpreter_for_less_than_its_session_stays(
    ground: Ground, options: Options
) -> None:
    from rows import hold

    (table,), (goal,) = hold.measure_on(ground, options, (1.0,), ("classic",))
    assert not table.failures
    assert len(table.lines) == 3
    assert {line[-1] for line in table.lines} == {"stays"}
    assert goal.is_kept


def test_a_member_that_is_gone_is_seen() -> None:
    from rows.hold import Watch

    watch = Watch()
    one, other = frozenset({"one"}), frozenset({"other"})
    watch.seen["stays"] = [(1.0, frozenset()), (2.0, one), (3.0, one), (9.0, frozenset())]
    watch.seen["out"] = [(2.0, one), (3.0, one), (5.0, frozenset()), (7.0, other)]
    watch.seen["again"] = [(2.0, one), (7.0, other)]
    figures = {"began": 2.5, "ended": 6.0, "until": 8.0}
    assert watch.out_after("stays", figures) is None
    assert watch.out_after("out", figures) == 2.5
    assert watch.out_after("again", figures) == 4.5
    with pytest.raises(ValueError, match="never named"):
        watch.out_after("nobody", figures)


def test_a_client_has_a_process_and_an_environment_of_its_own(ground: Ground, options: Options) -> None:
    from harness import children
    from harness.plan import Plan
    from rows import polls

    topic, count = ground.values(100, options)
    plan = Plan(ground.bootstrap, topic, "bench-children", count=count, seconds=0.2, work_us=1.0)
    outcome = children.run("polls", "kadence", polls.LINES["kadence"], plan)
    assert isinstance(outcome, dict), outcome
    # The clock starts with the first poll, whose records do not count.
    assert outcome["records"] >= count - 500 or outcome["seconds"] >= 0.2
    assert outcome["cpu"] > 0
    assert outcome["rss"] > 10
    assert outcome["turns"] >= 1


def test_our_lines_are_run_once_more_by_each_other_python(tmp_path: Path) -> None:
    from harness import children
    from harness.plan import Line, Plan, beside_another, beside_other_pythons

    python = tmp_path / "python"
    # It says which line of which row it was to run; what Kadence would measure there is not asked here.
    python.write_text('#!/bin/sh\n[ "$2 ${3%%:*}" = "latency kadence@other" ] && echo \'{"p50": 1.5}\'\n')
    python.chmod(0o755)
    lines = {
        "kadence": Line("Kadence", lambda plan: {}, {"A": "B"}),
        "confluent": Line("confluent-kafka", lambda plan: {}),
    }
    beside_another(lines, tmp_path)
    beside_other_pythons(lines, [str(python)])
    name = f"kadence@other:{python}"
    assert [*lines] == ["kadence", "confluent", "kadence@other", name]
    assert lines[name].title == f"Kadence ({python})"
    assert lines[name].environment == {"A": "B"}
    assert children.run("latency", name, lines[name], Plan("127.0.0.1:1", "t", "g")) == {"p50": 1.5}


def test_a_client_that_fails_is_a_reason_and_no_crash() -> None:
    from harness import children
    from harness.plan import Plan
    from rows import polls

    plan = Plan("127.0.0.1:1", "values-100", "g", count=1000, java=("false",))
    outcome = children.run("polls", "java-classic", polls.LINES["java-classic"], plan)
    assert isinstance(outcome, str)
    assert "ended with 1" in outcome


@pytest.mark.heavy
def test_java_is_timed(kafka: Kafka) -> None:
    from harness import topics
    from harness.ground import PERFORMANCE
    from harness.plan import Plan
    from rows import polls

    topics.fill(kafka.bootstrap_servers, "bench-100", 100, RECORDS)
    command = tuple(kafka.tool_command(PERFORMANCE))
    plan = Plan(
        kafka.bootstrap_servers, "bench-100", "bench-java", count=1000, protocol="classic", java=command
    )
    assert polls.LINES["java-classic"].run(plan)["records"] >= 1000


def test_rates_ratios_and_goals() -> None:
    from harness.plan import Line
    from harness.rates import Rates

    lines = {name: Line(name, lambda _plan: {}) for name in ("kadence", "confluent-best", "java", "broken")}

    def run(rate: float, cpu: float) -> dict[str, float]:
        return {"records": rate, "seconds": 1.0, "cpu": cpu, "rss": 50.0, "turns": 0}

    runs: dict[str, list[Outcome]] = {
        "kadence": [run(2_000_000, 1.0), run(1_000_000, 0.4)],
        "confluent-best": [run(500_000, 0.5)],
        "java": [run(4_000_000, 1.0)],
        "broken": ["no route", run(0, 1.0)],
    }
    rates = Rates("reading", lines, runs)
    assert rates.table().text().splitlines() == [
        "reading",
        "client          records/s  × confluent's best  CPU µs/record  peak RSS MB",
        "kadence           2,000 k                4.00           0.40           50",
        "confluent-best      500 k                1.00           1.00           50",
        "java              4,000 k                8.00           0.25           50",
        "broken                  –                   –              –            –",
        "broken: no route",
        "broken: read no records",
    ]
    assert rates.ratio_goal("w", "kadence", "confluent", 4, "c").is_kept
    assert rates.ratio_goal("w", "kadence", "java", 1.5, "j").is_kept is False
    assert rates.ratio_goal("w", "kadence", "broken", 1.5, "b").is_kept is None
    assert rates.cpu_goal("w", "kadence", 0.35).cells() == (
        "w",
        "≤ 0.35 µs CPU a record",
        "0.40 µs",
        "**no**",
    )


def test_a_section_of_the_document_is_replaced(tmp_path: Path) -> None:
    from harness.table import Table, write_section

    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- begin a -->\n<!-- end a -->\n\nThe end.\n")
    table = Table("Reading", ("client", "rate"), [("ours", "2 k")], ["A note."], ["theirs: no route"])
    write_section(page, "a", "make a", ["first"])
    write_section(page, "a", "make a", [table.markdown()])
    assert page.read_text() == (
        "# Title\n\n<!-- begin a -->\n\nMade by `make a`.\n\n**Reading**\n\n| client | rate |\n|---|---:|\n"
        "| ours | 2 k |\n\nA note.\n\ntheirs: no route\n\n<!-- end a -->\n\nThe end.\n"
    )


def test_a_row_that_fails_does_not_stop_the_others(
    ground: Ground, options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import run
    from harness.plan import Row
    from harness.table import Goal, Table
    from rows import iteration, polls

    def broken(_ground: Ground, _options: Options) -> tuple[list[Table], list[Goal]]:
        raise ValueError("no such topic")

    def whole(_ground: Ground, _options: Options) -> tuple[list[Table], list[Goal]]:
        return [Table("Reading", ("client",), [("ours",)])], [Goal("reading", "fast", "slow", False)]

    monkeypatch.setattr(polls, "ROW", Row("polls", {}, broken))
    monkeypatch.setattr(iteration, "ROW", Row("iteration", {}, whole))
    assert run.measure(ground, options, ["polls", "iteration"], None) == ["polls"]
    printed = capsys.readouterr()
    assert "no such topic" in printed.err
    assert "Reading" in printed.out
    assert "**no**" in printed.out


@pytest.mark.parametrize("path", ["polls-100", pytest.param("async", marks=pytest.mark.heavy)])
def test_stages_of_a_record(
    ground: Ground, options: Options, capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str
) -> None:
    import stages
    from harness.reports import Report

    reports = stages.measure(ground, options, [path], 3)
    printed = capsys.readouterr().out
    assert stages.PATHS[path].title in printed
    assert "(touch.py" in printed or path != "polls-100"
    each = reports[path]
    assert each.total > 0
    assert each.facts["application's Python calls for each record"] > 0
    page, saved = tmp_path / "page.md", json.loads(json.dumps(each.data()))
    stages.write(page, reports, {path: Report.from_data(saved)})
    assert "|  | before | now |" in page.read_text()
    assert f"| **together** | **{each.total:.3f}** | **{each.total:.3f}** |" in page.read_text()


def test_threads_are_told_apart_and_counted() -> None:
    from harness.threads import Usage

    before = {"seconds": 1.0, "user_ticks": 90, "system_ticks": 10, "sleeps": 5}
    after = {"seconds": 3.0, "user_ticks": 140, "system_ticks": 160, "sleeps": 8}
    spent = Usage(**after) - Usage(**before)  # type: ignore[arg-type]
    assert spent.seconds == 2.0
    assert spent.system == 1.5
    assert spent.user == 0.5
    assert spent.sleeps == 3
