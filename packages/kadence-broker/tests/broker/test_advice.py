"""Advice in errors of the embedded broker: a broker that is started by it runs."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kadence import Admin
from kadence.errors import ConfigError, KafkaError
from kadence_broker import Broker


class Row(NamedTuple):
    wrong: dict[str, Any]
    advice: str
    right: tuple[dict[str, Any], ...]


def config(**settings: Any) -> dict[str, Any]:
    return {"config": {name.replace("_", "."): value for name, value in settings.items()}}


ROWS = {
    "the port in the host": Row(
        {"host": "localhost:0"},
        "give the port beside the host: host 'localhost', port 0",
        ({"host": "localhost", "port": 0},),
    ),
    "an address elsewhere": Row(
        {"host": "192.0.2.1"},
        "127.0.0.1 is for clients on this machine, 0.0.0.0 listens on all addresses that it has",
        ({"host": "127.0.0.1"}, {"host": "0.0.0.0"}),
    ),
    "a misspelt setting": Row(
        config(num_partition=3), "did you mean 'num.partitions'", (config(num_partitions=3),)
    ),
    "a migration policy": Row(
        config(group_consumer_migration_policy="always"),
        "is bidirectional, upgrade, downgrade or disabled",
        tuple(
            config(group_consumer_migration_policy=each)
            for each in ("bidirectional", "upgrade", "downgrade", "disabled")
        ),
    ),
    "an assignor": Row(
        config(group_consumer_assignors="sticky"),
        "group.consumer.assignors knows uniform and range",
        (config(group_consumer_assignors="uniform,range"), config(group_consumer_assignors="range")),
    ),
    "protocols": Row(
        config(group_coordinator_rebalance_protocols="consumer"),
        "is 'classic' or 'classic,consumer'",
        (
            config(group_coordinator_rebalance_protocols="classic"),
            config(group_coordinator_rebalance_protocols="classic,consumer"),
        ),
    ),
    "a truth": Row(
        config(auto_create_topics_enable="perhaps"),
        "must be true or false",
        (config(auto_create_topics_enable="true"), config(auto_create_topics_enable="false")),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_broker_that_follows_the_advice_runs(row: Row) -> None:
    with pytest.raises((ConfigError, KafkaError), match=re.escape(row.advice)):
        Broker(**row.wrong)
    for right in row.right:
        with Broker(**right) as broker:
            assert broker.bootstrap_servers


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(KafkaError, match="choose another port, or 0 for any free one"):
            Broker(port=taken.getsockname()[1])
        with Broker(port=0) as broker:
            assert broker.bootstrap_servers


@contextmanager
def left(path: Path, harm: Callable[[Path], object]) -> Iterator[str]:
    """The error of a broker on a data directory that was left in order and then harmed."""
    with Broker(topics={"t": 1}, data_dir=path):
        pass
    harm(path)
    with pytest.raises(ConfigError) as caught:
        Broker(data_dir=path)
    yield str(caught.value)


def topics(path: Path) -> list[str]:
    with Broker(data_dir=path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return list(admin.list_topics())


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, data_dir=tmp_path / "one") as broker:
        with pytest.raises(ConfigError, match="end it, or take another directory"):
            Broker(data_dir=tmp_path / "one")
        assert topics(tmp_path / "two") == []
        broker.close()
    assert topics(tmp_path / "one") == ["t"]


def test_an_identity_that_is_empty(tmp_path: Path) -> None:
    meta = tmp_path / "meta.properties"
    with left(tmp_path, lambda _: meta.write_text("version=1\n")) as text:
        assert "names no cluster.id; mend it, or delete it to have another id" in text
    meta.unlink()
    assert topics(tmp_path) == ["t"]


def test_topics_that_are_gone(tmp_path: Path) -> None:
    journal = tmp_path / "topics.journal"
    kept = {}

    def harm(_: Path) -> None:
        kept["journal"] = journal.read_bytes()
        journal.unlink()

    with left(tmp_path, harm) as text:
        assert "Restore it; or, to begin without topics, move all else that is in" in text
    journal.write_bytes(kept["journal"])
    assert topics(tmp_path) == ["t"]
    with left(tmp_path, harm):
        for each in list(tmp_path.iterdir()):
            each.rename(tmp_path.parent / f"away-{each.name}")
    assert topics(tmp_path) == []


def test_topics_of_which_the_last_is_damaged(tmp_path: Path) -> None:
    """Its line is cut off, as the error says; the next one says how to go on with fewer topics."""
    journal = tmp_path / "topics.journal"
    with left(tmp_path, lambda _: journal.write_bytes(journal.read_bytes()[:-1])) as text:
        assert "line 2 is damaged; mend it, or cut the file before it" in text
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(ConfigError, match="it may lack topics") as caught:
        Broker(data_dir=tmp_path)
    found = re.search(r"to continue with its present content, delete (\S+)$", str(caught.value))
    assert found is not None
    Path(found[1]).unlink()
    assert topics(tmp_path) == []
