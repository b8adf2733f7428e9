"""What changes a group's number of its topics, and what does not (KIP-1101)."""

from __future__ import annotations

from kadence_broker.coordinator.metadata_hash import metadata_hash
from kadence_broker.coordinator.topics import TopicImage, TopicTable

ORDERS = TopicImage("orders", b"o" * 16, 3)


def test_it_depends_on_ids_partitions_and_racks_and_on_nothing_else() -> None:
    topics = TopicTable([ORDERS, TopicImage("other", b"x" * 16, 1)])
    before = metadata_hash(["orders", "missing"], topics)

    topics.put(TopicImage("other", b"x" * 16, 7))
    assert metadata_hash({"missing", "orders"}, topics) == before

    numbers = {before}
    for changed in (
        TopicImage("orders", b"o" * 16, 4),
        TopicImage("orders", b"p" * 16, 3),
        TopicImage("orders", b"o" * 16, 3, (frozenset("a"), frozenset("b"), frozenset("c"))),
    ):
        topics.put(changed)
        numbers.add(metadata_hash(["orders"], topics))
    assert len(numbers) == 4


def test_it_is_0_without_topics_and_the_same_in_every_process() -> None:
    assert metadata_hash(["orders"], TopicTable()) == 0
    assert metadata_hash(["orders"], TopicTable([ORDERS])) == 4110588742928580056
