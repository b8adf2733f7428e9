"""What is logged of a broker that is away: one short line, repeated ever more seldom, and one when it is back."""

from __future__ import annotations

import logging

import pytest

from kadence.errors import AuthenticationError, ConnectError
from kadence.net.nodes import Outages

AWAY = ConnectError("cannot connect to broker 1 (kafka:9092): Connection refused")
BOOTSTRAP = ConnectError("cannot connect to bootstrap kafka:9092: Connection refused")


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kadence.net")


def test_each_address_is_told_once_then_with_the_count_of_attempts(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    for now in range(0, 100_000, 500):
        outages.failed(now, "kafka:9092", BOOTSTRAP if now % 1_000 else AWAY)
    assert caplog.messages == [
        str(AWAY),
        f"{AWAY} (21 attempts in 10 s)",
        f"{AWAY} (61 attempts in 30 s)",
        f"{AWAY} (141 attempts in 70 s)",
    ]


def test_at_last_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    for now in range(0, 86_400_000, 1_000):
        outages.failed(now, "kafka:9092", AWAY)
    assert 24 * 60 // 5 - 3 <= len(caplog.messages) <= 24 * 60 // 5 + 6


def test_its_return_is_told_and_the_next_outage_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    outages.failed(0, "kafka:9092", AWAY)
    outages.reached(8_400, "kafka:9092", "broker 1 (kafka:9092)")
    outages.reached(8_500, "kafka:9092", "broker 1 (kafka:9092)")
    outages.reached(8_500, "other:9092", "broker 2 (other:9092)")
    outages.failed(9_000, "kafka:9092", AWAY)
    assert caplog.messages == [str(AWAY), "connected to broker 1 (kafka:9092) again, after 8 s", str(AWAY)]


def test_another_kind_of_error_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refused = AuthenticationError("broker 1 (kafka:9092) refused the password of alice")
    outages = Outages()
    outages.failed(0, "kafka:9092", AWAY)
    outages.failed(1_000, "kafka:9092", refused)
    outages.failed(2_000, "kafka:9092", refused)
    assert caplog.messages == [str(AWAY), f"{refused} (2 attempts in 1 s)"]
