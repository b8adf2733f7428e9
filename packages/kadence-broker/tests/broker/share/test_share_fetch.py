"""ShareFetch and ShareAcknowledge at the leader: sessions, waiting, and the fields of the answers."""

from __future__ import annotations

from tests.broker.share.scene import Scene, acks, acquired, offsets


def test_smoke() -> None:
    scene = Scene()
    scene.produce(10)
    member = scene.member()
    answer = member.fetch()
    assert acquired(answer) == [(0, 9, 1)]
    assert offsets(answer) == 10
    assert member.acknowledge([(0, 9, 1)]) == 0
    scene.produce(5)
    answer = member.fetch()
    assert acquired(answer) == [(10, 14, 1)]
    answer = member.fetch(acks={0: [(10, 12, 2), (13, 14, 1)]})
    assert acks(answer) == 0
    assert acquired(answer) == [(10, 12, 2)]
    scene.close()
