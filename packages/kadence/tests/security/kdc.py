"""A key distribution centre of Kerberos on a free port, for a few tests: MIT's krb5kdc with a realm of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE

from kadence_testing.kafka import free_ports

__all__ = ["REALM", "Kdc", "missing", "running"]

REALM = "KADENCE.TEST"
_SBIN = "/usr/sbin:/usr/local/sbin:/sbin"


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{_SBIN}"


def missing() -> str | None:
    """What is not installed here; None when a centre can be run."""
    absent = [
        tool for tool in ("krb5kdc", "kdb5_util", "kadmin.local") if shutil.which(tool, path=_path()) is None
    ]
    if absent:
        return f"no {', '.join(absent)} (Debian: krb5-kdc, krb5-admin-server)"
    try:
        import gssapi  # noqa: F401 - whether it can be
    except ImportError:
        return "the package gssapi is not installed (pip install 'kadence[gssapi]'; Debian: gcc, libkrb5-dev)"
    return None


@dataclass(frozen=True)
class Kdc:
    """A running centre.

    Attributes:
        environment: what its clients need. config: krb5.conf, for Java.
    """

    directory: Path
    config: Path
    environment: Mapping[str, str]

    def keytab(self, principal: str) -> Path:
        """Make a principal with a random key, and the file that holds it."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        self._admin(f"addprinc -randkey {principal}")
        self._admin(f"ktadd -k {path} {principal}")
        return path

    def _admin(self, query: str) -> None:
        tool = shutil.which("kadmin.local", path=_path())
        assert tool is not None
        _run([tool, "-r", REALM, "-q", query], self.environment)


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(directory: Path) -> Iterator[Kdc]:
    (port,) = free_ports(1)
    config, profile = directory / "krb5.conf", directory / "kdc.conf"
    config.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    )
    profile.write_text(
        f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
        f"  acl_file = {directory}/acl\n  kdc_listen = 127.0.0.1:{port}\n  kdc_tcp_listen = 127.0.0.1:{port}\n }}\n"
        f"[logging]\n kdc = FILE:{directory}/kdc.log\n admin_server = FILE:{directory}/admin.log\n"
    )
    environment = {
        **os.environ,
        "PATH": _path(),
        "KRB5_CONFIG": str(config),
        "KRB5_KDC_PROFILE": str(profile),
    }
    tools = {tool: shutil.which(tool, path=_path()) or tool for tool in ("kdb5_util", "krb5kdc")}
    _run([tools["kdb5_util"], "create", "-s", "-r", REALM, "-P", "master"], environment)
    centre = subprocess.Popen(
        [tools["krb5kdc"], "-n", "-r", REALM],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + PATIENCE
        while not _listens(port):
            assert centre.poll() is None, (directory / "kdc.log").read_text()
            assert time.monotonic() < end, "krb5kdc does not listen"
            time.sleep(0.05)
        yield Kdc(directory, config, environment)
    finally:
        centre.terminate()
        centre.wait(PATIENCE)
