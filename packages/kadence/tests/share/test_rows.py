"""Tables of a queue that are made of the fetched bytes: beside records, with gaps, damage, other polls and Ctrl-C."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.luck import seeds
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, HandNetwork

from kadence import ShareConsumer
from kadence.records import encode_batch

pytest.importorskip("pyarrow")

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


def has_rows(consumer: ShareConsumer[Any, Any]) -> list[bool]:
    """Whether what the last poll returned was taken as columns, chunk by chunk."""
    return [chunk.rows is not None for chunk in consumer._core.holding._returned]


def offsets_of(table: Any) -> list[int]:
    return list(table.column("offset").to_pylist())


def said(network: HandNetwork, kind: int = ACCEPT) -> list[int]:
    return [at for _, first, last, each in network.taken() if each == kind for at in range(first, last + 1)]


def test_a_table_is_made_of_bytes_not_of_records(made: Made) -> None:
    consumer, network = made
    network.put(1_000)
    assert offsets_of(consumer.poll_arrow()) == list(range(500))
    assert has_rows(consumer) == [True]
    assert offsets_of(consumer.poll_arrow(max_records=-1)) == list(range(500, 1_000))
    assert said(network) == list(range(500))
    assert consumer._core.holding.in_hand()[0] == 500
    consumer.commit()
    assert said(network) == list(range(500, 1_000))
    assert consumer.poll_arrow().num_rows == 0
    assert [loan.released for loan in network.loans] == [1]


def test_what_a_table_accepts_goes_with_the_fetch_that_its_next_poll_waits_for(made: Made) -> None:
    consumer, network = made
    network.put(500)
    assert consumer.poll_arrow().num_rows == 500
    network.coming.append(network.fetch(1, first=500))
    wakes = network.state.wakes
    assert offsets_of(consumer.poll_arrow(1)) == [500]
    # One has what is said and that a poll waits, one is the end of the fetch.
    assert network.state.wakes == wakes + 2
    assert said(network) == list(range(500))


HEADERS: list[list[tuple[str, bytes | None]]] = [[], [("h", b"x")], [("a", None), ("b", b"y")]]


def random_fetch(network: HandNetwork, chance: random.Random, first: int) -> int:
    """Batches with compacted offsets, of which some were acquired. Returns the offset behind them."""
    data, at = b"", first
    for _ in range(chance.randint(1, 4)):
        count = chance.randint(1, 12)
        rows = [
            (
                1_000 + number,
                chance.choice([None, b"k%d" % number]),
                chance.choice([None, b"", b"v%d" % (at + number)]),
                chance.choice(HEADERS),
            )
            for number in range(count)
        ]
        data += encode_batch(rows, base_offset=at)
        at += count
        if chance.random() < 0.2:
            at += chance.randint(1, 3)
    acquired, start = [], first
    while start < at:
        last = min(start + chance.randint(0, 15), at - 1)
        acquired.append((start, last, chance.randint(1, 5)))
        start = last + 1 + (chance.randint(1, 3) if chance.random() < 0.3 else 0)
    network.put([], first=first, data=data, acquired=acquired)
    return at


@pytest.mark.parametrize("seed", seeds(10))
def test_tables_have_what_records_have(make: Callable[..., Made], seed: int) -> None:
    found: list[tuple[list[Any], list[Any]]] = []
    for explicit in (True, False):
        chance = random.Random(seed)
        consumer, network = make({"share.acknowledgement.mode": "explicit"} if explicit else {})
        at = 0
        for _ in range(5):
            at = random_fetch(network, chance, at)
        rows: list[Any] = []
        while (table := consumer.poll_arrow(max_records=chance.randint(1, 30), headers=True)).num_rows:
            if explicit:
                consumer.acknowledge(table)
            rows += table.to_pylist()
        consumer.commit()
        words = [
            (offset, kind) for _, first, last, kind in network.taken() for offset in range(first, last + 1)
        ]
        # Several fetches of one partition take turns.
        found.append((sorted(rows, key=itemgetter("offset")), sorted(words)))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1], "accepted, and gaps"


def test_tables_and_other_polls_take_turns(made: Made) -> None:
    consumer, network = made
    network.gathers = True
    network.put(1_500)
    assert offsets_of(consumer.poll_arrow(max_records=10)) == list(range(10))
    records = iter(consumer)
    assert [next(records).offset for _ in range(5)] == list(range(10, 15))
    # Records that were read ahead come first.
    assert offsets_of(consumer.poll_arrow(max_records=1_000)) == list(range(15, 1_015))
    assert has_rows(consumer) == [False, True]
    assert offsets_of(consumer.poll_arrow(max_records=7)) == list(range(1_015, 1_022))
    assert has_rows(consumer) == [True]
    assert [each.offset for each in consumer.poll(max_records=-1)] == list(range(1_022, 1_500))
    consumer.commit()
    assert sorted(said(network)) == list(range(1_500))


def test_a_damaged_batch_is_rejected_between_tables(made: Made) -> None:
    consumer, network = made
    batches = [bytearray(encode_batch([(0, None, b"v", [])] * 3, base_offset=3 * n)) for n in range(3)]
    batches[1][-1] ^= 1
    network.put([], data=bytes(b"".join(batches)), acquired=[(0, 8, 1)])
    assert offsets_of(consumer.poll_arrow()) == [0, 1, 2]
    assert offsets_of(consumer.poll_arrow()) == [6, 7, 8]
    assert said(network, REJECT) == [3, 4, 5]


def test_another_subscription_releases_what_no_table_had(made: Made) -> None:
    consumer, network = made
    network.put(100)
    consumer.poll_arrow(max_records=10)
    consumer.subscribe("others")
    assert said(network, RELEASE) == list(range(10, 100))
    network.state.assignment = frozenset()
    consumer.commit()
    assert said(network) == list(range(10))


@pytest.mark.parametrize("columns", [["deliveryCount"], ["value", "deliveryCount", "offset"], ["topic"]])
def test_columns_are_chosen(made: Made, columns: list[str]) -> None:
    consumer, network = made
    assert consumer.poll_arrow(columns=columns).column_names == columns
    network.put(5, acquired=[(0, 2, 1), (3, 4, 3)])
    table = consumer.poll_arrow(columns=columns)
    assert (table.column_names, table.num_rows) == (columns, 5)
    if "deliveryCount" in columns:
        assert table.column("deliveryCount").to_pylist() == [1, 1, 1, 3, 3]


@pytest.mark.parametrize("explicit", [False, True])
def test_ctrl_c_at_any_line_loses_no_row_and_accepts_none_twice(
    make: Callable[..., Made], explicit: bool
) -> None:
    def accepts(table: Any) -> list[int]:
        if explicit:
            consumer.acknowledge(table)
        return offsets_of(table)

    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make({"share.acknowledgement.mode": "explicit"} if explicit else {})
        network.put(20, acquired=[(0, 9, 1), (10, 19, 2)])
        seen = accepts(consumer.poll_arrow(max_records=5))
        table: Any = None
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            table = consumer.poll_arrow(max_records=10)
        happened = interruption.happened
        seen += [] if table is None else accepts(table)
        # Records of the same, should the next poll want these.
        if at % 2:
            records = consumer.poll(max_records=3)
            if explicit:
                consumer.acknowledge(records)
            seen += [each.offset for each in records]
        while (table := consumer.poll_arrow()).num_rows:
            seen += accepts(table)
        assert seen == list(range(20)), interruption.where
        accepted = said(network)
        assert len(accepted) == len(set(accepted)), interruption.where
    assert at > 20
