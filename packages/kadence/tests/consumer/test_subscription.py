"""What `subscription()` tells."""

from __future__ import annotations

import re
from contextlib import closing

from tests.consumer.support import poll_until
from tests.virtual import VirtualCluster


def test_a_pattern_is_told_by_the_topics_that_match_it_now() -> None:
    with closing(VirtualCluster()) as cluster:
        for topic in ("orders-a", "orders-b", "returns"):
            cluster.create_topic(topic, 1)
        with cluster.consumer(group_id="g", metadata_max_age_ms=1_000) as consumer:
            assert consumer.subscription() == frozenset()
            consumer.subscribe(re.compile("orders-.*"))
            poll_until(consumer, lambda: consumer.subscription() == {"orders-a", "orders-b"})
            cluster.create_topic("orders-c", 1)
            poll_until(consumer, lambda: len(consumer.subscription()) == 3)
            consumer.subscribe(["returns"])
            assert consumer.subscription() == {"returns"}
            consumer.unsubscribe()
            assert consumer.subscription() == frozenset()
