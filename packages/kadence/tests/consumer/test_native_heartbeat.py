"""The native thread (G3): a C call that holds the interpreter for longer than the session costs no membership.

`make hold` runs these with a session of six seconds, held for 15 and for 30.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import ON_CI
from tests.consumer.holding import Holder, membership_after, needs_the_lock
from tests.consumer.support import poll_until
from tests.net.conftest import Certificates, certificates
from tests.security.conftest import listener_identity

from kadence import Admin, Broker, Consumer, Producer
from kadence.errors import MissingDependencyError
from kadence.net import native_heartbeat, openssl
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence_testing.kafka import Kafka

__all__ = ["certificates"]

pytestmark = [
    pytest.mark.skipif(not native_heartbeat.AVAILABLE, reason="Windows has no native heartbeat"),
    needs_the_lock,
]

HOLD = float(os.environ.get("KADENCE_HOLD", "4"))
"""Seconds for which the interpreter is held."""
SESSION_MS = 2_000 if HOLD < 10 else 6_000
INTERVAL_MS = SESSION_MS // 3
TIMES = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": INTERVAL_MS}

KAFKA_HOLD = max(HOLD, 9.0)
KAFKA_SESSION_MS = 6_000
"""Kafka is a process of its own: on a busy machine it may stand still for seconds, and members' sessions go on."""
KAFKA_INTERVAL_MS = KAFKA_SESSION_MS // 3
KAFKA_TIMES = {"session_timeout_ms": KAFKA_SESSION_MS, "heartbeat_interval_ms": KAFKA_INTERVAL_MS}


def check(said: dict[str, Any], hold: float = HOLD, session_ms: int = SESSION_MS) -> None:
    """The member is the one it was, and it was the native thread that kept it."""
    assert said["late"] * 1000 > session_ms, said
    assert said["same member"], said
    first, last = said["generations"]
    assert first == last, said
    assert said["rebalances"] == 1, said
    assert said["stood in"] * session_ms / 3 > hold * 1000 - session_ms, said


def test_g3_a_held_interpreter_costs_no_membership(broker: Broker) -> None:
    broker.create_topic("t", 2)
    with (
        broker.faults.observe(HeartbeatRequest) as beats,
        broker.faults.observe(JoinGroupRequest) as joins,
    ):
        said = membership_after(
            "t", HOLD, {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", **TIMES}
        )
    check(said)
    assert len(beats) >= said["stood in"]
    assert len(joins) <= 2, "the first join asks for a member id"


def test_g3_who_holds_the_interpreter_with_the_first_records_stays_too(broker: Broker) -> None:
    """They come before the first heartbeat, so the connection for heartbeats must not wait for that."""
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"value").result(60)
    settings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "group_protocol": "classic",
        # A heartbeat of a new member comes after a tenth of it.
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 4_000,
    }
    said = Holder("t", 9, settings, at_once=True).result()
    assert said["same member"], said
    assert said["rebalances"] == 1, said
    assert said["stood in"] > 0, said


def test_g3_b4_the_native_heartbeat_sends_nothing_once_the_processing_timeout_has_passed(
    broker: Broker,
) -> None:
    """Who holds the interpreter does not poll: the coordinator may find out."""
    broker.create_topic("t", 1)
    with broker.faults.observe(HeartbeatRequest) as beats:
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", **TIMES}
        said = membership_after(
            "t",
            3 * SESSION_MS / 1000,
            {**settings, "max_poll_interval_ms": SESSION_MS, "group_protocol": "classic"},
        )
    assert not said["same member"]
    assert 0 < said["stood in"] * INTERVAL_MS <= SESSION_MS + INTERVAL_MS
    assert len(beats) > 0


@pytest.fixture(scope="module")
def node(certificates: Certificates) -> Iterator[Kafka]:
    """A Kafka whose KIP-848 sessions are as short as those of the tests, plain and with TLS."""
    properties = {
        "group.consumer.session.timeout.ms": str(KAFKA_SESSION_MS),
        "group.consumer.heartbeat.interval.ms": str(KAFKA_INTERVAL_MS),
        **listener_identity("tls", certificates),
    }
    node = Kafka(properties, listeners={"TLS": "SSL"})
    try:
        node.start()
    except MissingDependencyError as error:
        if ON_CI:
            pytest.fail(f"real Kafka is required on CI: {error}")
        pytest.skip(f"no real Kafka: {error}")
    yield node
    node.stop()


@pytest.mark.kafka
@pytest.mark.skipif(not openssl.BOUND, reason="this OpenSSL is not reached by the compiled half")
def test_g3_on_real_kafka_with_both_protocols_plain_and_with_tls(
    node: Kafka, certificates: Certificates
) -> None:
    secure = {"security_protocol": "SSL", "ssl_ca_location": str(certificates.ca)}
    plain = {"bootstrap_servers": node.addresses["PLAINTEXT"]}
    tls = {"bootstrap_servers": node.addresses["TLS"], **secure}
    members: dict[str, dict[str, Any]] = {
        "classic plain": {**plain, **KAFKA_TIMES, "group_protocol": "classic"},
        "classic TLS": {**tls, **KAFKA_TIMES, "group_protocol": "classic"},
        "consumer plain": {**plain, "group_protocol": "consumer"},
        "consumer TLS": {**tls, "group_protocol": "consumer"},
    }
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics({name.replace(" ", "-"): 2 for name in members})
    with ThreadPoolExecutor(len(members)) as threads:
        runs = {
            name: threads.submit(
                membership_after, name.replace(" ", "-"), KAFKA_HOLD, {**settings, "group_id": name}
            )
            for name, settings in members.items()
        }
    found = {name: run.result() for name, run in runs.items()}
    sys.stdout.writelines(f"{name}: {said}\n" for name, said in found.items())
    for said in found.values():
        check(said, KAFKA_HOLD, KAFKA_SESSION_MS)


@pytest.mark.kafka
def test_g3_kip_848_what_the_group_changed_meanwhile_is_taken_afterwards(node: Kafka) -> None:
    """The coordinator assigns more in an answer that nobody reads, and is told the old epoch again and again."""
    settings = {
        "bootstrap_servers": node.bootstrap_servers,
        "group_id": "changing",
        "group_protocol": "consumer",
    }
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics({"changing": 2})
    with Consumer(settings) as other:
        other.subscribe("changing")
        poll_until(other, lambda: len(other.assignment()) == 2)
        holder = Holder("changing", KAFKA_HOLD, settings, grows_to=2)
        poll_until(other, lambda: len(other.assignment()) == 1)
        with ThreadPoolExecutor(1) as threads:
            holding = threads.submit(holder.wait_until_it_holds)
            poll_until(other, holding.done, seconds=60)
            holding.result()
    # It has left, and all is the holder's.
    said = holder.result()
    assert said["same member"], said
    assert said["lost"] == 0, said
    assert said["stood in"] > 0, said
    first, last = said["generations"]
    assert last == first + 1, said


@pytest.mark.kafka
def test_g3_kip_848_who_comes_meanwhile_gets_its_share_afterwards(node: Kafka) -> None:
    settings = {
        "bootstrap_servers": node.bootstrap_servers,
        "group_id": "growing",
        "group_protocol": "consumer",
    }
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics({"growing": 2})
    holder = Holder("growing", KAFKA_HOLD, settings, grows_to=1)
    holder.wait_until_it_holds()
    with Consumer(settings) as other:
        other.subscribe("growing")
        # Two, when it polls only after the holder has ended.
        poll_until(other, lambda: len(other.assignment()) >= 1, seconds=60)
        said = holder.result()
    assert said["lost"] == 0, said
    assert said["stood in"] > 0, said
