"""Random sequences of requests to our broker and to real Kafka: `make parity-groups` runs hundreds of them."""

from __future__ import annotations

import pytest
from tests.interop.sequences import compare
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
