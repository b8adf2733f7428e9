"""Files with secrets that every user of the machine may read, and settings that all may change, are warned of."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kadence.errors import ConfigError
from kadence.net import kerberos
from kadence.security import Kerberos
from kadence_broker import TlsFiles
from kadence_cli.broker import _users
from kadence_cli.clusters import settings_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")


def _broker_key(path: Path) -> None:
    with pytest.raises(ConfigError):
        TlsFiles(path).context()


def _broker_key_apart(path: Path) -> None:
    certificate = path.with_name("certificate.pem")
    certificate.touch(0o644)
    with pytest.raises(ConfigError):
        TlsFiles(certificate, path).context()


def _keytab(path: Path) -> None:
    kerberos.contexts(Kerberos("kafka", "me", f"FILE:{path}", None))


@pytest.fixture
def gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, as far as a keytab is asked for."""
    made: dict[str, Any] = {
        name: types.ModuleType(name) for name in ("gssapi", "gssapi.raw", "gssapi.raw.misc")
    }
    made["gssapi.raw.misc"].GSSError = ValueError
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("gssapi")
@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize(
    ("door", "what"),
    [
        (_broker_key, "a private key"),
        (_broker_key_apart, "a private key"),
        (lambda path: _users(str(path)), "passwords"),
        (_keytab, "a key"),
    ],
)
def test_a_secret_that_all_users_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, door: Callable[[Path], object], what: str, mode: int
) -> None:
    path = tmp_path / "secret"
    path.write_text("me:password\n")
    path.chmod(mode)
    door(path)
    said = f"every user of this machine can read {path}, which holds {what}: chmod o-r"
    assert (said in caplog.text) is (mode == 0o644)
    assert "password\n" not in caplog.text


@pytest.mark.parametrize("mode", [0o600, 0o622])
@pytest.mark.parametrize("name", ["client.properties", "client.toml"])
def test_settings_that_all_users_can_change_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, mode: int
) -> None:
    path = tmp_path / name
    path.write_text("# nothing\n")
    path.chmod(mode)
    assert settings_in(str(path), {}) == {}
    assert (f"every user of this machine can change {path}" in caplog.text) is (mode == 0o622)
