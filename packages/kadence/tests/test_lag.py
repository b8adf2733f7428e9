"""The lag of one partition with transactions, as everything tells it that tells a lag."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from examples.demo.group import total_lag
from tests.patience import until

from kadence import Admin, Broker, Consumer, Producer, TopicPartition
from kadence.lag import end_offset, lag
from kadence_cli.main import main
from kadence_cli.top.sampling import GroupHistory, Sample
from kadence_spark.progress import lag as lag_of_query

TP = TopicPartition("t", 0)
COMMITTED, STABLE, END = 2, 6, 9


@pytest.fixture
def servers() -> Iterator[str]:
    """Five records of a transaction and its marker, then three of one that is open. The group has committed two."""
    with (
        Broker(topics={"t": 1}) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="open") as producer,
    ):
        producer.init_transactions()
        with producer.transaction():
            for _ in range(5):
                producer.send("t", b"", partition=0)
        producer.begin_transaction()
        for _ in range(3):
            producer.send("t", b"", partition=0).result()
        admin.alter_consumer_group_offsets("g", {TP: COMMITTED})
        yield broker.bootstrap_servers
        producer.abort_transaction()


@pytest.mark.parametrize(("isolation_level", "end"), [("read_uncommitted", END), ("read_committed", STABLE)])
def test_a_consumer_and_its_metrics(servers: str, isolation_level: str, end: int) -> None:
    with Consumer(bootstrap_servers=servers, isolation_level=isolation_level) as consumer:
        consumer.assign({TP: 0})
        until(lambda: consumer.poll(1, max_records=COMMITTED), what="records come", every=0)
        until(lambda: consumer.position(TP) == COMMITTED, what="two of them")
        assert consumer.end_offsets([TP]) == {TP: end}
        behind = lag(end_offset(END, STABLE, read_committed=isolation_level == "read_committed"), COMMITTED)
        assert consumer.current_lag(TP) == behind == end - COMMITTED
        assert [value for name, value in consumer.metrics().items() if name.name == "records-lag"] == [behind]


def test_the_command_line_and_spark(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    behind = lag(END, COMMITTED)
    assert behind == END - COMMITTED
    assert main(["groups", "lag", "g", "-b", servers, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["last_stable"], row["end"], row["lag"]) == (STABLE, END, behind)
    with Admin(bootstrap_servers=servers) as admin:
        assert total_lag(admin, "g", "t", {0: 8}) == {0: behind}
        described = admin.describe_consumer_groups("g")["g"]
        committed = {tp: each.offset for tp, each in admin.list_consumer_group_offsets("g").items()}
        ends = {tp: each.offset for tp, each in admin.list_offsets({TP: "latest"}).items() if each}
    history = GroupHistory("g")
    history.add(Sample(described, committed, ends), 0, 0.0)
    assert history.progress(TP).lag == behind
    source = {"endOffset": {"t": {"0": COMMITTED}}, "latestOffset": {"t": {"0": END}}}
    assert lag_of_query({"sources": [source]}) == {TP: behind}


def test_what_is_not_known_and_what_is_older() -> None:
    assert lag(None, 5) is None
    assert lag(5, None) is None
    assert lag(4, 5) == 0, "the end was told before the position moved past it"
