"""PEM under Java's names, and key stores of Java's that are refused with a command that works."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.net.conftest import Certificates

from kadence.config import AdminConfig
from kadence.errors import ConfigError, MissingDependencyError
from kadence.java import find_java
from kadence.net.tls import make_context, token_context

BASE = {"bootstrap.servers": "localhost:9092", "security.protocol": "SSL"}


def parse(**settings: Any) -> AdminConfig:
    return AdminConfig.parse(BASE, **settings)


def parts(pem: Path) -> tuple[str, str]:
    """Key and chain of one file."""
    text = pem.read_text()
    start = text.index("-----BEGIN CERTIFICATE")
    return text[:start], text[start:]


def test_pem_files_under_javas_names(certificates: Certificates) -> None:
    context = make_context(
        parse(
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(certificates.ca),
            ssl_keystore_type="pem",
            ssl_keystore_location=str(certificates.client),
        )
    )
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_pem_texts(certificates: Certificates) -> None:
    key, chain = parts(certificates.client)
    config = parse(
        ssl_truststore_certificates=certificates.ca.read_text(),
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=chain,
    )
    assert len(make_context(config).get_ca_certs()) == 1
    assert key.splitlines()[2] not in repr(config)


@pytest.mark.parametrize("where", ["memory", "a file"])
def test_a_key_that_is_given_as_text_is_in_no_file_that_stays_or_that_others_read(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    if where == "memory":
        if not hasattr(os, "memfd_create"):
            pytest.skip("this system has no files in memory")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, path: str, *rest: Any, **more: Any) -> None:
        if where == "a file":
            modes.extend(stat.S_IMODE(each.stat().st_mode) for each in (Path(path).parent, Path(path)))
        load(context, path, *rest, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    key, chain = parts(certificates.client)
    make_context(parse(ssl_keystore_key=key, ssl_keystore_certificate_chain=chain))
    if where == "memory":
        files = Path("/proc/self/fd")
        assert not any("kadence-key" in str(each.readlink()) for each in files.iterdir() if each.is_symlink())
    assert modes == ([0o700, 0o600] if where == "a file" else [])
    assert list(tmp_path.iterdir()) == []


def test_pem_that_is_none(certificates: Certificates) -> None:
    key, chain = parts(certificates.client)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.certificates: its text cannot be used"):
        make_context(parse(ssl_truststore_certificates="no"))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key and ssl\.keystore\.certificate\.chain cannot"):
        make_context(parse(ssl_keystore_key=key[:80], ssl_keystore_certificate_chain=chain))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location '.*ca\.pem' cannot be loaded"):
        make_context(parse(ssl_keystore_type="PEM", ssl_keystore_location=str(certificates.ca)))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ssl_truststore_location": "t.jks"}, "keytool -list -rfc -keystore t.jks > ca.pem"),
        ({"ssl_truststore_type": "JKS"}, "type JKS cannot be read"),
        (
            {"ssl_truststore_location": "t.jks", "ssl_truststore_password": "hunter2"},
            "-keystore t.jks > ca.pem",
        ),
        ({"ssl_truststore_type": "PEM", "ssl_truststore_password": "hunter2"}, "leave it out"),
        (
            {"ssl_keystore_location": "k.jks"},
            "-destkeystore client.p12 -deststoretype PKCS12 && openssl pkcs12",
        ),
        (
            {"ssl_keystore_location": "k.p12", "ssl_keystore_type": "PKCS12"},
            "openssl pkcs12 -in k.p12 -out client.pem",
        ),
        ({"ssl_keystore_password": "hunter2", "ssl_keystore_type": "PEM"}, "ssl.key.password is the one"),
        ({"ssl_keystore_key": "k"}, "belong together"),
        ({"ssl_key_location": "k"}, "needs ssl.certificate.location"),
        ({"ssl_ca_location": "a", "ssl_truststore_certificates": "b"}, "both say whom to trust"),
        (
            {"ssl_certificate_location": "a", "ssl_keystore_location": "b", "ssl_keystore_type": "PEM"},
            "both say which certificate to show",
        ),
    ],
)
def test_stores_of_java_and_contradictions_are_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**settings)
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_command_for_a_trust_store_works(certificates: Certificates, tmp_path: Path) -> None:
    try:
        keytool = find_java().executable.with_name("keytool")
    except MissingDependencyError as missing:
        pytest.skip(str(missing))
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    store = ["-keystore", "trust.jks", "-storepass", "changeit"]
    subprocess.run(
        [str(keytool), "-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), *store],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    with pytest.raises(ConfigError) as refused:
        parse(ssl_truststore_location="trust.jks")
    command = str(refused.value).splitlines()[1].strip().replace("keytool", str(keytool), 1)
    subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, check=True, capture_output=True, input=b"changeit\n", timeout=60
    )
    assert len(make_context(parse(ssl_ca_location=str(tmp_path / "ca.pem"))).get_ca_certs()) == 1


def test_the_command_for_a_key_store_works(certificates: Certificates, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = ["openssl", "pkcs12", "-export", "-in", str(certificates.client), "-out", "k.p12"]
    subprocess.run([*made, "-passout", "pass:changeit"], cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(ConfigError) as refused:
        parse(ssl_keystore_location="k.p12", ssl_keystore_type="PKCS12")
    command = str(refused.value).splitlines()[1].strip() + " -passin pass:changeit -passout pass:hunter2"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, capture_output=True)
    pem = str(tmp_path / "client.pem")
    make_context(parse(ssl_certificate_location=pem, ssl_key_password="hunter2"))
    with pytest.raises(ConfigError, match=r"needs ssl\.key\.password"):
        make_context(parse(ssl_certificate_location=pem))


def test_a_token_endpoint_is_trusted_by_the_same_authorities(certificates: Certificates) -> None:
    oauth = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://login.example.org",
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
    }
    settings = {"bootstrap_servers": "localhost:9092", **oauth}
    assert token_context(AdminConfig.parse(**settings)) is None
    own = token_context(AdminConfig.parse(**settings, ssl_ca_location=str(certificates.ca)))
    assert own is not None
    assert own.check_hostname
