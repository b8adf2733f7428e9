"""Random sequences of requests to our broker and to real Kafka: `make parity-groups` runs hundreds of them."""

from __future__ import annotations

import pytest
from tests.interop.queues import QUEUES
from tests.interop.sequences import compare
from tests.interop.share_groups import SHARE_MEMBERS
from tests.interop.steps import MODES

from kadence_testing.kafka import Kafka


@pytest.mark.parametrize("mode", MODES)
def test_random_requests_get_the_answers_that_kafka_gives(kafka: Kafka, mode: str) -> None:
    differences = [
        str(each)
        for each in compare(mode, range(6), kafka.bootstrap_servers)
        if each and each.excused is None
    ]
    assert not differences, "\n".join(differences)


def test_random_requests_of_share_groups_get_the_answers_that_kafka_gives(kafka: Kafka) -> None:
    found = [each for each in compare(QUEUES, range(200), kafka.bootstrap_servers) if each]
    differences = [str(each) for each in found if each.excused is None]
    assert not differences, "\n".join(differences)
    assert len(found) < 20  # what is excused ends its sequence


def test_random_requests_of_share_members_get_the_answers_that_kafka_gives(kafka: Kafka) -> None:
    found = [each for each in compare(SHARE_MEMBERS, range(20), kafka.bootstrap_servers) if each]
    assert not [str(each) for each in found if each.excused is None]
    assert len(found) < 5
