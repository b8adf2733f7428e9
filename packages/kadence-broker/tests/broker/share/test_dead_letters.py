"""Dead letters (KIP-1191): which records get one, what it says, and that no topic's trouble keeps a record."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.broker.share.scene import GROUP, Scene, acquired
from tests.broker.share.test_state import killed

from kadence.protocol import error_codes as codes
from kadence.records import FetchedRecords, encode_batch
from kadence_broker.share.acknowledging import Acknowledgement
from kadence_broker.share.stored import ShareKey
from kadence_broker.storage import BatchError, Isolation, Partition

ACCEPT, RELEASE, REJECT = 1, 2, 3
NAME = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


def with_letters(scene: Scene, settings: dict[str, str] | None = None, partitions: int = 1) -> Scene:
    """The group has a dead letter topic, and these further settings."""
    scene.cluster.create_topic("dlq.t", partitions, ENABLED)
    scene.configure(**{NAME: "dlq.t", **(settings or {})})
    return scene


def letters(scene: Scene, topic: str = "dlq.t", partition: int = 0) -> list[Any]:
    """Key, value and headers without their prefix of all letters."""
    log = scene.log(partition, topic)
    found: list[Any] = []
    for view in log.read(0, 1 << 20, Isolation.UNCOMMITTED):
        for each in FetchedRecords(view, topic, 0, 0).take():
            headers = {
                name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in each.headers
            }
            found.append((each.key, each.value, headers))
    return found


def fails_for(topic: str) -> Any:
    """In place of `Partition.append`: one topic has no leader for a while."""
    real = Partition.append

    def append(self: Partition, *args: Any, **options: Any) -> Any:
        if self.topic.name == topic:
            raise BatchError(codes.NOT_LEADER_OR_FOLLOWER, "a test")
        return real(self, *args, **options)

    return append


def start_of(scene: Scene) -> int:
    scene.turn()
    led = scene.shares._led[ShareKey(GROUP, scene.topic_id, 0)]
    return led.state.start_offset


def test_a_rejected_record(scene: Scene) -> None:
    with_letters(scene)
    scene.produce(3)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 0, ACCEPT), (1, 1, REJECT)]) == 0
    assert start_of(scene) == 2
    headers = {
        "topic": "t",
        "partition": "0",
        "offset": "1",
        "group": "g",
        "delivery.count": "1",
        "message": "Offset rejected by client.",
    }
    assert letters(scene) == [(None, None, headers)]


def test_letters_that_wait_are_written_after_the_last_member_has_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_letters(scene)
    scene.produce(100)
    member = scene.member()
    member.fetch()
    with monkeypatch.context() as broken:
        broken.setattr(Partition, "append", fails_for("dlq.t"))
        assert member.acknowledge([(0, 99, [REJECT, ACCEPT] * 50)]) == 0
        scene.turn()
        member.connection.close()
        scene.turn()
    assert letters(scene) == []
    scene.turn(1_000)
    scene.turn()
    assert [int(headers["offset"]) for _, _, headers in letters(scene)] == list(range(0, 100, 2))
    assert scene.shares._led == {}, "the state has left the memory when the last letter was written"
    assert acquired(scene.member().fetch()) == []
    scene.turn()
    assert len(letters(scene)) == 50


def test_a_member_goes_in_the_moment_of_its_rejection(scene: Scene) -> None:
    with_letters(scene)
    scene.produce(1)
    member = scene.member()
    member.fetch()
    (led,) = scene.shares._led.values()
    assert led.acknowledge(scene.clock.now_ms(), "m", [Acknowledgement(0, 0, [3])], is_on_the_way=True) == 0
    member.connection.close()
    scene.turn()
    assert len(letters(scene)) == 1


@pytest.mark.parametrize("is_deleted", [False, True])
def test_letters_that_wait_are_written_though_the_group_has_another_place(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    with_letters(scene)
    scene.produce(3)
    member = scene.member()
    member.fetch()
    with monkeypatch.context() as broken:
        broken.setattr(Partition, "append", fails_for("dlq.t"))
        assert member.acknowledge([(1, 1, REJECT)]) == 0
        scene.turn()
    if is_deleted:
        assert scene.shares.delete(GROUP, scene.topic_id, 0) == 0
    else:
        assert scene.shares.alter(GROUP, scene.topic_id, 0, 2) == 0
    scene.turn(1_000)
    assert [headers["offset"] for _, _, headers in letters(scene)] == ["1"]


def test_a_record_that_ran_out_of_attempts(scene: Scene) -> None:
    with_letters(scene, {"share.delivery.count.limit": "2"})
    scene.produce(2)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 0, RELEASE), (1, 1, ACCEPT)]) == 0
    assert acquired(member.fetch()) == [(0, 0, 2)]
    scene.turn(30_000)
    assert start_of(scene) == 2
    ((_, _, headers),) = letters(scene)
    assert headers["message"] == "Offset delivery count exceeded the threshold."
    assert headers["delivery.count"] == "2"


def test_copies(scene: Scene) -> None:
    with_letters(scene, {COPY: "true"})
    now = scene.core.loop.wall_ms()
    batch = encode_batch(
        [(5, b"k", b"x" * 10, [("own", b"1")]), (6, b"k2", b"y" * 2_000, ())], compression="gzip"
    )
    scene.log().append(now, memoryview(batch))
    scene.produce(1)
    scene.cluster.topics["dlq.t"].config["max.message.bytes"] = "1000"
    scene.cluster.configure(scene.cluster.topics["dlq.t"], scene.cluster.topics["dlq.t"].config)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 2, REJECT)]) == 0
    assert start_of(scene) == 3
    found = letters(scene)
    assert [(key, value) for key, value, _ in found] == [(b"k", b"x" * 10), (None, None), (None, b"v2")]
    assert all("own" not in headers for *_, headers in found)
    (view,) = scene.log(0, "dlq.t").read(0, 1)[:1]
    assert FetchedRecords(view, "", 0, 0).take()[0].timestamp >= now - 1  # whose parts are rounded


def test_what_can_no_longer_be_read_has_headers_only(scene: Scene) -> None:
    with_letters(scene, {COPY: "true"})
    scene.produce(2)
    scene.produce(1)
    member = scene.member()
    member.fetch()
    scene.log().delete_before(2)
    assert member.acknowledge([(0, 2, REJECT)]) == 0
    scene.turn()
    assert [(value, headers["offset"]) for _, value, headers in letters(scene)] == [
        (None, "0"),
        (None, "1"),
        (b"v2", "2"),
    ]


def test_the_partition_is_the_records_own_modulo_those_of_the_topic(scene: Scene) -> None:
    with_letters(scene, partitions=2)
    scene.produce(1, partition=1)
    member = scene.member()
    member.fetch([1])
    assert member.acknowledge([(0, 0, REJECT)], partition=1) == 0
    scene.turn()
    assert (len(letters(scene, partition=0)), len(letters(scene, partition=1))) == (0, 1)


def test_many_letters_are_written_in_rounds(scene: Scene) -> None:
    with_letters(scene)
    scene.produce(1_200)
    member = scene.member()
    member.fetch(max_records=2_000)
    assert member.acknowledge([(0, 1_199, REJECT)]) == 0
    assert start_of(scene) == 1_200
    assert [headers["offset"] for *_, headers in letters(scene)] == [str(each) for each in range(1_200)]


def test_gaps_and_deleted_records_get_none(scene: Scene) -> None:
    with_letters(scene)
    scene.produce(3)
    scene.produce(3)
    member = scene.member()
    member.fetch(max_records=1)
    assert member.acknowledge([(0, 2, 0)]) == 0
    scene.log().delete_before(6)
    member.fetch()
    scene.turn()
    assert letters(scene) == []


@pytest.mark.parametrize(
    ("group", "topic", "why"),
    [
        ("dlq.none", None, "does not exist"),
        ("dlq.t", {}, "does not have errors.deadletterqueue.group.enable=true"),
        ("other", ENABLED, "does not begin with 'dlq.'"),
        ("t", None, "is the topic that the group reads"),
    ],
)
def test_a_topic_that_may_not_take_letters_costs_them(
    scene: Scene,
    caplog: pytest.LogCaptureFixture,
    group: str,
    topic: dict[str, str] | None,
    why: str,
) -> None:
    if topic is not None:
        scene.cluster.create_topic(group, 1, topic)
    scene.configure(**{NAME: group})
    scene.produce(1)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 0, REJECT)]) == 0
    assert start_of(scene) == 1
    (line,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert why in line.getMessage()
    assert "archived regardless" in line.getMessage()


def test_a_compacted_topic_takes_no_letters_without_keys(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.cluster.create_topic("dlq.t", 1, {**ENABLED, "cleanup.policy": "compact"})
    scene.configure(**{NAME: "dlq.t"})
    scene.produce(1)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 0, REJECT)]) == 0
    assert start_of(scene) == 1
    assert "archived regardless" in caplog.text


def test_a_topic_is_made_where_the_broker_may() -> None:
    scene = Scene(errors__deadletterqueue__auto__create__topics__enable=True, num__partitions=3)
    scene.configure(**{NAME: "dlq.new"})
    scene.produce(1)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 0, REJECT)]) == 0
    assert start_of(scene) == 1
    topic = scene.cluster.topics["dlq.new"]
    assert (len(topic.partitions), topic.config) == (3, {**ENABLED, "message.timestamp.type": "CreateTime"})
    assert len(letters(scene, "dlq.new")) == 1
    scene.close()


def test_letters_are_tried_again_five_times(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_letters(scene)
    scene.produce(1)
    member = scene.member()
    member.fetch()
    tries = []
    append = Partition.append

    def full(self: Partition, *args: Any, **options: Any) -> Any:
        if self.topic.name == "dlq.t":
            tries.append(scene.clock.now_ms())
            raise BatchError(codes.KAFKA_STORAGE_ERROR, "full")
        return append(self, *args, **options)

    monkeypatch.setattr(Partition, "append", full)
    assert member.acknowledge([(0, 0, REJECT)]) == 0
    for wait in (1_000, 2_000, 4_000, 8_000):
        assert start_of(scene) == 0
        scene.turn(wait)
    assert [after - before for before, after in pairwise(tries)] == [
        1_000,
        2_000,
        4_000,
        8_000,
    ]
    assert start_of(scene) == 1
    assert "it was tried 5 times" in caplog.text


def test_letters_that_were_owed_are_written_after_a_kill(tmp_path: Path) -> None:
    scene = with_letters(Scene(tmp_path))
    scene.produce(3)
    scene.cluster.lead({scene.log(0, "dlq.t"): -1})  # it takes nothing now
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 2, REJECT)]) == 0
    assert start_of(scene) == 0
    again = killed(scene, tmp_path)
    again.cluster.lead({again.log(0, "dlq.t"): 1})
    again.produce(1)
    late = again.member()
    assert acquired(late.fetch()) == [(3, 3, 1)]
    assert start_of(again) == 3
    assert [headers["offset"] for *_, headers in letters(again)] == ["0", "1", "2"]
    assert late.acknowledge([(3, 3, ACCEPT)]) == 0
    again.close()


def test_version_1_of_share_groups_has_no_letters() -> None:
    scene = with_letters(Scene(share__version=1))
    scene.produce(1)
    member = scene.member()
    member.fetch()
    assert member.acknowledge([(0, 0, REJECT)]) == 0
    assert start_of(scene) == 1
    assert letters(scene) == []
    scene.close()
