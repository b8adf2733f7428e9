"""`wakeup()` is for calls that wait for brokers; what takes effect at once leaves it to the next of those (C7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.support import Cluster, Shell

from kadence import TopicPartition
from kadence.errors import WakeupError

pytestmark = pytest.mark.brokers("embedded")

AT_ONCE: dict[str, Callable[[Any, TopicPartition], Any]] = {
    "assign": lambda c, p: c.assign({p: 5}),
    "incremental_assign": lambda c, p: c.incremental_assign({p: 5}),
    "seek": lambda c, p: c.seek(p, 5),
    "seek_to_beginning": lambda c, p: c.seek_to_beginning([p]),
    "seek_to_end": lambda c, p: c.seek_to_end([p]),
    "pause": lambda c, p: c.pause([p]),
    "resume": lambda c, p: c.resume([p]),
    "incremental_unassign": lambda c, p: c.incremental_unassign([p]),
}


@pytest.mark.needs("reading")
@pytest.mark.parametrize("name", AT_ONCE)
def test_c7_a_wakeup_is_for_the_next_poll_and_not_for_what_waits_for_no_broker(
    cluster: Cluster, shell: Shell, name: str
) -> None:
    """As with Kafka's own client, where none of these raises WakeupException."""
    partition = TopicPartition(cluster.topic(1), 0)
    cluster.produce(partition.topic, 10, partitions=1)
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: consumer.assign({partition: 0}))
    consumer.wakeup()
    shell.do(lambda: AT_ONCE[name](consumer, partition))
    with pytest.raises(WakeupError):
        shell.do(lambda: consumer.poll(10))
    if name in ("assign", "incremental_assign", "seek"):
        assert shell.do(lambda: consumer.position(partition)) == 5
    shell.do(consumer.close)


@pytest.mark.needs("groups")
def test_c7_a_wakeup_before_assign_costs_no_commit(cluster: Cluster, shell: Shell) -> None:
    """What was proved of the partitions that go is committed all the same, though nobody waits for it."""
    one, other = (TopicPartition(cluster.topic(1), 0) for _ in range(2))
    cluster.produce(one.topic, 10, partitions=1)
    consumer = shell.make(
        bootstrap_servers=cluster.bootstrap_servers, group_id=cluster.name("g"), auto_offset_reset="earliest"
    )
    shell.do(lambda: consumer.assign([one]))
    count = 0
    while count < 10:
        count += len(shell.do(lambda: consumer.poll(5)))
    shell.do(lambda: consumer.poll(0))
    consumer.wakeup()
    shell.do(lambda: consumer.assign([other]))
    with pytest.raises(WakeupError):
        shell.do(lambda: consumer.poll(0))
    # In the order of the commits: once this one has ended, so has that of assign().
    shell.do(lambda: consumer.commit({other: 0}))
    assert shell.do(lambda: consumer.committed([one]))[one].offset == 10
    shell.do(consumer.close)
