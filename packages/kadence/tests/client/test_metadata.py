"""What all clients do with metadata: which answers say something, when it is asked for again, lower leader epochs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.worlds.cluster import answer, config, lost, told

from kadence.client.metadata import BY_TOPIC_ID, LowerLeaderEpochs, Metadata, by_ids, by_names, fault_of
from kadence.clock import FOREVER
from kadence.connection.cluster import Cluster, apply
from kadence.connection.request import Completed, Request
from kadence.errors import (
    BrokerError,
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
    TransportError,
    UnsupportedVersionError,
)
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse, MetadataResponsePartition
from kadence.types import Node, TopicPartition

P0 = TopicPartition("t", 0)


class Client(Metadata):
    """The least that a client adds: it uses one topic."""

    def __init__(self, **settings: object) -> None:
        super().__init__(config(**settings), logger("kadence.test"))
        self._needs_update = True

    def poll(self, now: int) -> Request | None:
        self._recover(now)
        if self._in_flight is not None or self._due > now:
            return None
        return self._refresh(now, ["t"], creates=False)

    def on_response(self, now: int, completed: Completed) -> KafkaError | None:
        error = self._take(now, completed)
        self._backoff.succeeded() if error is None else self._backoff.failed(now)
        return error

    def only(self, now: int) -> Request:
        request = self.poll(now)
        assert request is not None
        return request


# ------------------------------------------------------------ requests


def test_topics_are_asked_for_by_name_by_id_or_all_and_only_named_ones_may_be_created() -> None:
    request = by_names(["t", "u"], creates=True)
    assert [each.name for each in request.topics or []] == ["t", "u"]
    assert request.allow_auto_topic_creation
    assert not by_names(["t"]).allow_auto_topic_creation
    everything = by_names(None, creates=True)
    assert (everything.topics, everything.allow_auto_topic_creation) == (None, False)
    named = by_ids({b"2" * 16, b"1" * 16})
    assert [(each.topic_id, each.name) for each in named.topics or []] == [
        (b"1" * 16, None),
        (b"2" * 16, None),
    ]
    assert not named.allow_auto_topic_creation


def test_ids_are_asked_for_only_where_a_broker_takes_them() -> None:
    client = Client()
    assert client._identify(0, frozenset({b"1" * 16})).min_version == BY_TOPIC_ID


# ------------------------------------------------------------ which answers say something


def _without_brokers() -> MetadataResponse:
    response = told({P0: 1})
    response.brokers = []
    return response


def _counted(*numbers: int) -> MetadataResponse:
    response = told({P0: 1})
    response.topics[0].partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=1) for number in numbers
    ]
    return response


@pytest.mark.parametrize(
    ("response", "kind", "passes"),
    [
        (MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED), DisconnectedError, True),
        (MetadataResponse(error_code=ec.REQUEST_TIMED_OUT), BrokerError, True),
        (MetadataResponse(error_code=ec.UNKNOWN_SERVER_ERROR), BrokerError, False),
        (_without_brokers(), TransportError, True),
        (_counted(0, 0), MalformedMessageError, False),
        (_counted(-1), MalformedMessageError, False),
        (_counted(1, 0, 3), MalformedMessageError, False),
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing(
    response: MetadataResponse, kind: type[KafkaError], passes: bool
) -> None:
    client = Client(metadata_recovery_rebootstrap_trigger_ms=10_000)
    client.on_response(0, answer(client.only(0), told({P0: 1}), 0))
    known = client.cluster
    client.request_update(1_000)
    error = client.on_response(1_000, answer(client.only(1_000), response, 1_000))
    assert isinstance(error, kind)
    assert error.retriable == passes
    assert (client.cluster is known) == (response.error_code != ec.REBOOTSTRAP_REQUIRED)
    assert client.poll(1_000) is None, "not in a loop"
    assert client.poll(1_200) is not None


@pytest.mark.parametrize("response", [told({P0: 1}), _counted(), _counted(1, 0), told({})])
def test_an_answer_that_can_be_used(response: MetadataResponse) -> None:
    assert fault_of(response, rebootstraps=False) is None


def test_kip899_where_nobody_begins_again_a_broker_that_asks_for_it_has_only_failed() -> None:
    client = Client(metadata_recovery_strategy="none")
    begun: list[int] = []
    client.on_rebootstrap = begun.append
    response = MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED)
    error = client.on_response(0, answer(client.only(0), response, 0))
    assert isinstance(error, BrokerError)
    assert (error.code, begun) == (ec.REBOOTSTRAP_REQUIRED, [])


# ------------------------------------------------------------ when


def test_equal_questions_are_one() -> None:
    """As in Java: managers that wait for better metadata say so in each of their turns."""
    client = Client()
    request = client.only(0)
    client.request_update(1)
    client.request_update(2)
    assert client.poll(3) is None
    client.on_response(10, answer(request, told({P0: 1}), 10))
    assert client.poll(10_000) is None


def test_what_is_known_of_some_topics_does_not_make_all_of_it_new() -> None:
    client = Client(metadata_max_age_ms=5_000)
    request = client._refresh(0, ["t"], creates=True, is_full=False)
    client.on_response(10, answer(request, told({P0: 1}), 10))
    assert client.poll(10) is not None


def test_metadata_is_asked_for_again_when_it_is_old() -> None:
    client = Client(metadata_max_age_ms=5_000)
    client.on_response(10, answer(client.only(0), told({P0: 1}), 10))
    assert client.poll(5_009) is None
    assert client.poll(5_010) is not None


def test_kip1102_only_who_says_nothing_at_all_is_gone() -> None:
    """A broker that lacks a version has answered."""
    client = Client(metadata_recovery_rebootstrap_trigger_ms=10_000)
    begun: list[int] = []
    client.on_rebootstrap = begun.append
    too_old = UnsupportedVersionError("offers Metadata in versions 0 to 9")
    client.on_response(0, Completed(client.only(0), None, too_old, -1, 0))
    client.poll(60_000)
    assert begun == []
    client = Client(metadata_recovery_rebootstrap_trigger_ms=10_000)
    client.on_rebootstrap = begun.append
    client.on_response(0, lost(client.only(0), 0))
    client.poll(60_000)
    assert begun == [60_000]


def test_kip_1242_a_broker_that_is_another_one_makes_all_be_forgotten_but_not_all_the_time() -> None:
    client = Client(retry_backoff_max_ms=1_000)
    begun: list[int] = []
    client.on_rebootstrap = begun.append
    client.on_response(0, answer(client.only(0), told({P0: 1}), 0))
    client.brokers_are_wrong()
    client.poll(500)
    assert begun == [500]
    assert client.cluster.nodes == {}
    client.brokers_are_wrong()
    client.poll(1_499)
    assert begun == [500], "a cluster whose brokers never are who it says must not be asked without a pause"
    client.poll(1_500)
    assert begun == [500, 1_500]


def test_kip_1242_where_nobody_begins_again_nothing_is_forgotten() -> None:
    client = Client(metadata_recovery_strategy="none")
    begun: list[int] = []
    client.on_rebootstrap = begun.append
    client.on_response(0, answer(client.only(0), told({P0: 1}), 0))
    client.brokers_are_wrong()
    client.poll(500)
    assert begun == []


def test_kip951_a_leader_that_is_told_is_followed_and_the_others_are_asked_for() -> None:
    client = Client()
    client.on_response(0, answer(client.only(0), told({P0: 1}, epoch=3), 0))
    assert not client.moved(1, P0, 2, 3, {}), "no news"
    assert client.poll(1) is None
    assert client.moved(1, P0, 5, 4, {5: Node(5, "e", 5)})
    assert (client.cluster.leader(P0), client.cluster.nodes[5].host) == (5, "e")
    assert client.poll(1) is not None


# ------------------------------------------------------------ lower leader epochs


class Restored:
    """Answers about one partition, whose epoch is 5 by what is known."""

    def __init__(self) -> None:
        self.epochs = LowerLeaderEpochs()
        self.cluster = apply(Cluster(), told({P0: 1}, epoch=5), None)

    def told(self, now: int, epoch: int, change: Callable[[MetadataResponse], None] | None = None) -> bool:
        response = told({P0: 2}, epoch=epoch)
        if change is not None:
            change(response)
        return P0 in self.epochs.given_up(now, self.cluster, response)


def test_lower_epochs_are_believed_when_every_answer_of_a_while_has_them() -> None:
    restored = Restored()
    assert [restored.told(at, 2) for at in (0, 5_000, 9_999, 10_000)] == [False, False, False, True]
    assert not restored.told(10_001, 2), "counted anew"


def test_two_answers_may_come_from_one_broker_that_is_behind() -> None:
    restored = Restored()
    assert [restored.told(at, 2) for at in (0, 60_000, 60_001)] == [False, False, True]


def test_one_answer_that_is_not_behind_shows_that_the_others_were() -> None:
    restored = Restored()
    assert [restored.told(at, epoch) for at, epoch in ((0, 2), (5_000, 5), (9_000, 2), (10_000, 2))] == [
        False
    ] * 4


def test_a_topic_that_an_answer_does_not_name_is_counted_on() -> None:
    restored = Restored()

    def about_others(response: MetadataResponse) -> None:
        response.topics[0].name = "u"

    assert [restored.told(0, 2), restored.told(1, 2), restored.told(2, 9, about_others)] == [False] * 3
    assert restored.told(10_000, 2)


def test_a_topic_of_another_id_and_no_epoch_at_all_are_not_behind() -> None:
    restored = Restored()

    def made_again(response: MetadataResponse) -> None:
        response.topics[0].topic_id = b"other topic id 0"

    for at in range(0, 30_000, 5_000):
        assert not restored.told(at, 2, made_again)
        assert not restored.told(at, -1)


def test_a_client_forgets_what_was_contradicted_for_long_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client()
    client.on_response(0, answer(client.only(0), told({P0: 1}, epoch=5), 0))
    for now in (100, 5_000, 10_100):
        assert client.cluster.leader(P0) == 1
        client.request_update(now)
        client.on_response(now, answer(client.only(now), told({P0: 2}, epoch=2), now))
    info = client.cluster.partition(P0)
    assert info is not None
    assert (info.leader, info.leader_epoch) == (2, 2)
    assert "the leader epochs of t-0 are lower than before" in caplog.text
    assert client._due != FOREVER
