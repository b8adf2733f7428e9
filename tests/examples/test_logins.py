"""examples/logins/: the tokens that two clouds' libraries make log in to a broker that checks what those clouds' do.

The signing is the libraries' own, without a network: AWS's needs none, and Google's asks an endpoint on loopback.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.examples.programs import EXAMPLES
from tests.patience import PATIENCE

from kadence import Admin, AuthenticationError, Broker, Consumer, Producer
from kadence_broker import ValidToken
from kadence_cli import main

REGION = "eu-central-1"
EMAIL = "reports@project.iam.gserviceaccount.com"
ACCESS_TOKEN = "ya29.secret-of-google"


def decoded(part: str) -> str:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()


def of_msk(token: str) -> ValidToken:
    """What Amazon's brokers look at: a request to connect, signed for this region and not yet over."""
    url = urlsplit(decoded(token))
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    user, _, *scope = query["X-Amz-Credential"].split("/")
    began = time.mktime(time.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ")) - time.timezone
    is_sound = (
        (url.scheme, url.netloc) == ("https", f"kafka.{REGION}.amazonaws.com")
        and query["Action"] == "kafka-cluster:Connect"
        and query["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
        and scope == [REGION, "kafka-cluster", "aws4_request"]
        and query["X-Amz-SignedHeaders"] == "host"
        and len(query["X-Amz-Signature"]) == 64
        and query["X-Amz-Security-Token"] == "of the session"
        and abs(time.time() - began) < PATIENCE
    )
    if not is_sound:
        raise ValueError("not signed for this cluster")
    return ValidToken(user, int(began + int(query["X-Amz-Expires"])) * 1000)


def of_google(token: str) -> ValidToken:
    """What Google's brokers look at: header, claims and an access token of Google's, each in base64."""
    header, claims, access = map(decoded, token.split("."))
    said = json.loads(claims)
    if json.loads(header) != {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"} or access != ACCESS_TOKEN:
        raise ValueError("not a token of Google's")
    if said["iss"] != "Google" or not said["iat"] <= time.time() < said["exp"]:
        raise ValueError("not Google's, or not now")
    return ValidToken(said["sub"], int(said["exp"] * 1000))


@contextmanager
def secured(validator: Callable[[str], ValidToken], provider: str) -> Iterator[tuple[Broker, dict[str, Any]]]:
    """A broker, and the settings for it as a file or a command line has them: all text."""
    with Broker(topics={"t": 1}, token_validator=validator) as broker:
        yield (
            broker,
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": broker.security_protocol,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.provider": provider,
            },
        )


def round_trip(settings: dict[str, Any]) -> None:
    """Each of the clients logs in."""
    with Producer(settings) as producer:
        producer.send("t", b"v").result(PATIENCE)
    with Consumer(settings, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        assert next(iter(consumer)).value == b"v"
    with Admin(settings) as admin:
        assert "t" in admin.list_topics(timeout=PATIENCE)


@pytest.fixture(autouse=True)
def logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PYTHONPATH."""
    monkeypatch.syspath_prepend(EXAMPLES / "logins")


def test_amazon(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    for name, value in {
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret-of-amazon",
        "AWS_SESSION_TOKEN": "of the session",
    }.items():
        monkeypatch.setenv(name, value)
    caplog.set_level("DEBUG")
    with secured(of_msk, "amazon_msk:token") as (broker, settings):
        round_trip(settings)
        more = [f"-X{name}={value}" for name, value in settings.items() if name != "bootstrap.servers"]
        assert main(["topics", "list", "-b", broker.bootstrap_servers, *more]) == 0
        assert capsys.readouterr().out.startswith("{")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        with (
            Admin(settings) as admin,
            pytest.raises(AuthenticationError, match="the token provider amazon_msk:token"),
        ):
            admin.list_topics(timeout=PATIENCE)
        monkeypatch.delenv("AWS_REGION")
        with (
            Admin(settings) as admin,
            pytest.raises(
                AuthenticationError, match="provider amazon_msk:token: RuntimeError: set AWS_REGION"
            ),
        ):
            admin.list_topics(timeout=PATIENCE)
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith("kadence"))
    assert "X-Amz" not in ours
    assert "secret-of-amazon" not in ours


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """An endpoint that gives tokens for a service account; what it was asked for."""
    pytest.importorskip("google.auth")
    asked: list[str] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            body = json.dumps(
                {"access_token": ACCESS_TOKEN, "expires_in": 3600, "token_type": "Bearer"}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": EMAIL,
        "token_uri": f"http://127.0.0.1:{server.server_port}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_google(google: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with secured(of_google, "google_kafka:token") as (_, settings):
        round_trip(settings)
    [asked] = google
    claims = parse_qs(asked)["assertion"][0].split(".")[1]
    assert json.loads(decoded(claims))["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith("kadence"))
    assert ACCESS_TOKEN not in ours
