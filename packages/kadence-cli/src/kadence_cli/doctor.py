"""``kadence doctor``: checks the installation and the brokers, and names missing packages."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.parts import EXTRAS
from kadence_cli.common import (
    add_client_options,
    add_command,
    client_config,
    print_json,
    print_table,
    read_settings,
    shared_settings,
)

if TYPE_CHECKING:
    from kadence import Admin
    from kadence.client.waits import Waits

__all__ = ["add", "not_installed", "run"]

_DESCRIPTION = """\
Check this installation: the native heartbeat, optional packages, Java and
Spark, and the brokers if options or the environment name them. It names each
missing part and how to get it. Status 1 if a part that is there, or a broker,
does not work."""

_EXAMPLES = """\
  kadence doctor -b kafka-1:9092       the brokers of a cluster, too
  kadence doctor --json | jq 'select(.status != "ok")'"""


class _Package(NamedTuple):
    """A module, its distribution, the extra that installs it, and its use."""

    module: str
    distribution: str
    extra: str
    use: str


_PACKAGES: Final = (
    _Package("kadence_spark", "kadence-spark", "spark", "topics on Spark, and pipelines"),
    _Package("pyarrow", "pyarrow", "arrow", "poll_arrow() and Spark"),
    _Package("pyspark", "pyspark", "spark", "Spark"),
    _Package("rich", "rich", "cli", "kadence pipeline and kadence top"),
    _Package("textual", "textual", "cli", "kadence top"),
    _Package("argcomplete", "argcomplete", "cli", "completion in shells"),
    _Package("pandas", "pandas", "notebook", "frames of kadence.read()"),
    _Package("tqdm", "tqdm", "notebook", "the bar of kadence.read()"),
    _Package("textual_serve", "textual-serve", "serve", "kadence top --serve"),
    _Package("prometheus_client", "prometheus_client", "prometheus", "metrics for Prometheus"),
    _Package("opentelemetry", "opentelemetry-api", "otel", "metrics and traces for OpenTelemetry"),
    _Package("fastavro", "fastavro", "avro", "Avro"),
    _Package("pyruhvro", "pyruhvro", "decode", "fast Avro in Arrow tables and Spark"),
    _Package("google.protobuf", "protobuf", "protobuf", "Protobuf"),
    _Package("ptars", "ptars", "decode", "Protobuf in Arrow tables and Spark"),
    _Package("jsonschema", "jsonschema", "json-schema", "checking JSON Schemas"),
    _Package("deltalake", "deltalake", "delta", "Delta tables in Spark"),
    _Package("pyiceberg", "pyiceberg", "iceberg", "Iceberg tables in Spark"),
    _Package("gssapi", "gssapi", "gssapi", "logins with Kerberos"),
    _Package("re2", "google-re2", "broker", "subscriptions by pattern at the embedded broker"),
)

Finding = dict[str, str]


def not_installed(error: ModuleNotFoundError) -> str | None:
    """How to get the module that was not found, if it is of a package that only some commands need."""
    name = error.name or "?"
    for each in _PACKAGES:
        if f"{name}.".startswith(f"{each.module}.") or each.module.startswith(f"{name}."):
            return f"{each.distribution} is not installed: pip install 'kadence[{each.extra}]'"
    return None


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence doctor``."""
    parser = add_command(
        commands,
        "doctor",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines, even on a terminal")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; 1 when something does not work."""
    findings = [*_here(), *_packages(), *_spark()]
    if _names_brokers(arguments):
        findings += _brokers(client_config(arguments), arguments)
    else:
        findings.append(_finding("brokers", "none", "not asked: name one with -b HOST:PORT"))
    if arguments.json:
        for finding in findings:
            print_json(finding)
    else:
        print_table(findings, ("check", "status", "found"), sys.stdout, wrap=True)
    return int(any(finding["status"] == "wrong" for finding in findings))


def _names_brokers(arguments: argparse.Namespace) -> bool:
    """Whether brokers are named: the default address alone is no reason to use the network."""
    given = arguments.bootstrap_servers or os.environ.get("KADENCE_BOOTSTRAP_SERVERS")
    settings = {**shared_settings(arguments), **read_settings(arguments.settings)}
    return bool(given) or "bootstrap.servers" in settings


def _finding(check: str, status: str, found: str) -> Finding:
    """One line. ``status``: ok, none (optional, and not there), or wrong."""
    return {"check": check, "status": status, "found": found}


def _here() -> Iterator[Finding]:
    from kadence import records
    from kadence.net import native_heartbeat, openssl

    yield _finding(
        "Kadence", "ok", f"{metadata.version('kadence')}, Python {platform.python_version()}, {sys.platform}"
    )
    yield _finding("checksum", "ok", records.KERNEL)
    if native_heartbeat.AVAILABLE:
        hindrance = openssl.hindrance()
        if hindrance:
            yield _finding("native_heartbeat", "none", f"not over TLS: {hindrance}")
        else:
            yield _finding(
                "native_heartbeat",
                "ok",
                "heartbeats go out while C code holds the interpreter, over TLS, too",
            )
    else:
        yield _finding(
            "native_heartbeat",
            "none",
            "Windows has none; C code that holds the interpreter delays heartbeats",
        )


def _packages() -> Iterator[Finding]:
    needed = _needed()
    for module, distribution, extra, use in _PACKAGES:
        if not _is_here(module):
            if module == "pyarrow" and _is_here("pyspark"):
                yield _finding(module, "wrong", "PySpark is here and needs it: pip install 'kadence[spark]'")
            else:
                yield _finding(module, "none", f"for {use}: pip install 'kadence[{extra}]'")
            continue
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            yield _finding(module, "ok", f"version unknown, for {use}")
            continue
        oldest = needed.get(distribution, "0")
        if _numbers(version) < _numbers(oldest):
            cure = f"pip install -U 'kadence[{extra}]'"
            yield _finding(module, "wrong", f"{version} is older than {oldest}, for {use}: {cure}")
        else:
            yield _finding(module, "ok", f"{version}, for {use}")


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing, too
        return False


def _needed() -> dict[str, str]:
    """The oldest version of each package that this installation's metadata accepts."""
    found = (re.match(r"([\w.-]+)[^;]*>=\s*([\d.]+)", each) for each in _requirements())
    return {match[1]: match[2] for match in found if match is not None}


def _requirements() -> Iterator[str]:
    """Of all packages of Kadence that are here."""
    for name in ("kadence", *{name.replace("_", "-") for name in EXTRAS}):
        with suppress(metadata.PackageNotFoundError):
            yield from metadata.requires(name) or ()


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with, without zeros at the end: 18 and 18.0 are the same."""
    begin = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(each) for each in begin[0].split(".")] if begin else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _spark() -> Iterator[Finding]:
    from kadence.errors import MissingDependencyError
    from kadence.java import find_java

    has_spark = _is_here("pyspark")
    try:
        java = find_java()
    except MissingDependencyError as error:
        yield _finding("Java", "wrong" if has_spark else "none", str(error))
    else:
        yield _finding("Java", "ok", f"{java.version}, from {java.source}")
    if has_spark and _is_here("pyarrow") and _is_here("kadence_spark"):
        yield _worker()


def _worker() -> Finding:
    """The interpreter that Spark starts for its workers."""
    # Read before kadence_spark is imported, which sets it.
    named = os.environ.get("PYSPARK_PYTHON")
    from kadence_spark import interpreter

    if named is None:
        return _finding(
            "Spark's workers", "ok", f"{sys.executable}, as this program; PYSPARK_PYTHON is not set"
        )
    lacks = interpreter.what_it_lacks(named)
    if lacks is not None:
        cure = f"set {interpreter.NAMED_BY} to {sys.executable}, or install kadence[spark] there"
        return _finding("Spark's workers", "wrong", f"{interpreter.NAMED_BY}={named}: {lacks}; {cure}")
    if shutil.which(named) != sys.executable:
        return _finding("Spark's workers", "ok", f"{named}, another interpreter than {sys.executable}")
    return _finding("Spark's workers", "ok", named)


def _brokers(config: Mapping[str, Any], arguments: argparse.Namespace) -> Iterator[Finding]:
    from kadence.errors import ConfigError, KafkaError
    from kadence_cli.common import CommandError
    from kadence_cli.reach import quiet, reached, said_of_cluster

    servers = str(config["bootstrap.servers"])
    try:
        with reached(config, arguments) as admin, quiet():
            for node in admin.describe_cluster(timeout=5).nodes:
                try:
                    said = _about_broker(admin, node.node_id)
                except KafkaError as error:
                    found = _naming(f"{node.host}:{node.port}", _told(error))
                    yield _finding(f"broker {node.node_id}", "wrong", found)
                else:
                    yield _finding(f"broker {node.node_id}", "ok", f"{node.host}:{node.port}, {said}")
    except ConfigError:
        # A wrong setting is a wrong command line.
        raise
    except (KafkaError, CommandError) as error:
        said = _told(error)
        if isinstance(error, KafkaError):
            said = said_of_cluster(said, arguments)
        yield _finding("brokers", "wrong", f"{_naming(servers, said)}{_advice(said)}")


def _told(error: Exception) -> str:
    """The error in one line; for a timeout, its cause."""
    from kadence.errors import BrokerError

    # The broker's answer to a login is only a code; the error itself has advice.
    is_told = isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, BrokerError)
    why = error.__cause__ if is_told else error
    return " ".join(str(why).split())


def _naming(addresses: str, said: str) -> str:
    """The message, with the brokers' addresses unless it has them."""
    names_all = all(address.strip() in said for address in addresses.split(","))
    return said if names_all else f"{addresses}: {said}"


def _advice(said: str) -> str:
    """Advice for errors that have none."""
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return "; name the CA that signed the broker's certificate: -X ssl.ca.location=FILE"
    return ""


def _about_broker(admin: Admin, node_id: int) -> str:
    """The broker's ApiVersions response, in words."""
    from kadence.admin.calls import Ask, Calls
    from kadence.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
    from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from kadence.protocol.fetch import FetchRequest
    from kadence.version import VERSION

    message = ApiVersionsRequest(client_software_name="kadence", client_software_version=VERSION)

    def ask(calls: Calls, deadline: int) -> Waits[ApiVersionsResponse]:
        return calls.ask(Ask(message, node_id), deadline)

    answer = admin._shell.run(5, ask)
    versions = {each.api_key: each for each in answer.api_keys}
    protocols = "classic and consumer" if ConsumerGroupHeartbeatRequest.API_KEY in versions else "classic"
    said = [f"{len(versions)} APIs", f"group protocols: {protocols}"]
    if (fetch := versions.get(FetchRequest.API_KEY)) is not None:
        said.append(f"Fetch up to v{fetch.max_version}")
    said += [
        f"{each.name} {each.max_version_level}"
        for each in answer.finalized_features
        if each.name == "metadata.version"
    ]
    return ", ".join(said)
