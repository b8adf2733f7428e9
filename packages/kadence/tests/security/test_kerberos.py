"""GSSAPI with a real key distribution centre and real Apache Kafka."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ON_CI
from tests.patience import PATIENCE, until
from tests.security import kdc

from kadence import Admin, Consumer, Producer, TopicPartition
from kadence.errors import AuthenticationError, MissingDependencyError
from kadence_testing.kafka import Kafka

pytestmark = pytest.mark.kafka

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


@dataclass(frozen=True)
class Realm:
    centre: kdc.Kdc
    kafka: Kafka
    alice: Path

    def settings(self, listener: str = "KERBEROS", **more: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.kafka.addresses[listener],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
            **more,
        }


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if (why := kdc.missing()) is not None:
        pytest.skip(f"KERBEROS WAS NOT TESTED: {why}")
    with kdc.running(tmp_path_factory.mktemp("kdc")) as centre:
        keytab = centre.keytab("kafka/127.0.0.1")
        jaas = (
            f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/127.0.0.1@{kdc.REALM}";'
        )
        properties = {"sasl.kerberos.service.name": "kafka"}
        for listener in ("kerberos", "brief"):
            properties[f"listener.name.{listener}.sasl.enabled.mechanisms"] = "GSSAPI"
            properties[f"listener.name.{listener}.gssapi.sasl.jaas.config"] = jaas
        properties["listener.name.brief.connections.max.reauth.ms"] = "2000"
        node = Kafka(
            properties,
            listeners={"KERBEROS": "SASL_PLAINTEXT", "BRIEF": "SASL_PLAINTEXT"},
            jvm_options=("-Xmx512m", f"-Djava.security.krb5.conf={centre.config}"),
        )
        try:
            node.start()
        except MissingDependencyError as error:
            if ON_CI:
                pytest.fail(f"real Kafka is required on CI: {error}")
            pytest.skip(f"no real Kafka: {error}")
        try:
            yield Realm(centre, node, centre.keytab("alice"))
        finally:
            node.stop()


@pytest.fixture(autouse=True)
def environment(realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(realm.centre.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


def works(settings: dict[str, Any]) -> bool:
    with Admin(**settings) as admin:
        return bool(admin.describe_cluster(timeout=PATIENCE).cluster_id)


def test_a_keytab_is_enough(realm: Realm) -> None:
    settings = realm.settings(sasl_kerberos_keytab=str(realm.alice), sasl_kerberos_principal="alice")
    with Producer(**settings) as producer:
        producer.send("tickets", b"v", partition=0).result(PATIENCE)
    with Consumer(**settings, auto_offset_reset="earliest", group_id="tickets") as consumer:
        consumer.subscribe(["tickets"])
        deadline = time.monotonic() + PATIENCE
        while not (records := consumer.poll(timeout=1)):
            assert time.monotonic() < deadline
        metrics = {name.name: value for name, value in consumer.metrics().items()}
    assert [record.value for record in records] == [b"v"]
    assert metrics["successful-authentication-total"] >= 2, (
        "each lane is a connection with a context of its own"
    )
    assert metrics["failed-authentication-total"] == 0


def test_jaas_as_java_has_it(realm: Realm) -> None:
    jaas = (
        f'{KRB5} useKeyTab=true storeKey=true keyTab="{realm.alice}" '
        f'principal="alice@{kdc.REALM}" serviceName="kafka";'
    )
    assert works(realm.settings(sasl_kerberos_service_name=None, sasl_jaas_config=jaas))


def test_tickets_that_kinit_has_got(realm: Realm) -> None:
    # KRB5CCNAME says where, for kinit and for us.
    import os

    subprocess.run(
        ["kinit", "-k", "-t", str(realm.alice), "alice"], env={**os.environ}, check=True, timeout=30
    )
    assert works(realm.settings())


def test_without_any_ticket_the_error_says_so(realm: Realm) -> None:
    with Consumer(**realm.settings()) as consumer:
        consumer.assign([TopicPartition("tickets", 0)])
        for _ in range(2):
            with pytest.raises(
                AuthenticationError, match="no Kerberos ticket of the ticket cache for kafka@127"
            ):
                consumer.poll(timeout=PATIENCE)


def test_a_service_that_the_centre_does_not_know_is_named(realm: Realm) -> None:
    settings = realm.settings(sasl_kerberos_keytab=str(realm.alice)) | {"sasl_kerberos_service_name": "kafak"}
    with (
        Consumer(**settings) as consumer,
        pytest.raises(
            AuthenticationError, match=r"kafak@127.0.0.1: Server .* not found in Kerberos database"
        ),
    ):
        consumer.partitions_for("tickets", timeout=PATIENCE)


def test_connections_authenticate_anew_before_the_broker_ends_their_session(realm: Realm) -> None:
    settings = realm.settings("BRIEF", sasl_kerberos_keytab=str(realm.alice))
    with Consumer(**settings) as consumer:
        consumer.assign([TopicPartition("tickets", 0)])

        def measured(name: str) -> float:
            return next(value for key, value in consumer.metrics().items() if key.name == name)

        def no_connection_closed() -> bool:
            """Through two sessions. A machine that is busy for the last tenth of one may lose a connection."""
            closed, before = (
                measured("connection-close-total"),
                measured("successful-reauthentication-total"),
            )
            until(
                lambda: (
                    not consumer.poll(timeout=0.2)
                    and measured("successful-reauthentication-total") >= before + 2
                ),
                every=0,
            )
            return measured("connection-close-total") == closed

        until(no_connection_closed, every=0)
        assert measured("failed-reauthentication-total") == 0
