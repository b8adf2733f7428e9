"""The front door loads what is used: which modules an import brings, never how long it takes."""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import re
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from tests.patience import PATIENCE

import kadence
from kadence import loading
from kadence.version import VERSION

ROOMS = {"admin", "net", "producer"}
PACKAGES = {"kadence_broker", "kadence_cli", "kadence_schemas", "kadence_spark", "kadence_testing"}
"""What a consumer's application side does not need."""

SLOW_TO_LOAD = {
    "ast",
    "base64",
    "dataclasses",
    "difflib",
    "dis",
    "inspect",
    "json",
    "pathlib",
    "platform",
    "shutil",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib",
    "uuid",
}
"""Of the standard library: a start without TLS has no use for them, and each takes 1 to 13 ms of it."""

HEAVY = {
    "asyncio",
    "concurrent",
    "ctypes",
    "http",
    "multiprocessing",
    "pyarrow",
    "socket",
    "ssl",
    "subprocess",
}


def loaded(statement: str) -> set[str]:
    """The modules that this statement brings into an interpreter that has nothing yet."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_the_package_alone_loads_nothing_but_its_own_door() -> None:
    modules = loaded("import kadence")
    assert {name for name in modules if name.startswith("kadence")} == {
        "kadence",
        "kadence.loading",
        "kadence.version",
    }
    assert not modules & (HEAVY | {"dataclasses", "inspect", "logging"})


def test_the_version_is_that_of_the_package() -> None:
    assert kadence.__version__ == VERSION
    names = ("kadence", *(f"kadence-{name}" for name in ("schemas", "broker", "spark", "cli")))
    assert {metadata.version(name) for name in names} == {VERSION}


def test_a_consumer_by_name_loads_its_network_side_and_no_other_room() -> None:
    modules = loaded("from kadence import Consumer")
    rooms = {name.split(".")[1] for name in modules if name.startswith("kadence.")}
    assert rooms & ROOMS == {"net"}
    assert not modules & PACKAGES
    assert not modules & (HEAVY - {"ctypes", "socket"})


MOST_MODULES = 141
"""Of ours for a consumer. Each is a file to be read, and to be found by who reads the code. A lower
number is better: take it down with what is merged, or loaded only where it is used. Three of them
are parts that share consumers have, too.
"""

SELDOM = {
    "kadence.config.producer",
    "kadence.config.values",
    "kadence.connection.authentication",
    "kadence.consumer.application.arrow_polls",
    "kadence.consumer.application.async_shell",
    "kadence.consumer.application.metrics",
    "kadence.consumer.assignors",
    "kadence.consumer.fetch.dead_letters",
    "kadence.consumer.fetch.decoding",
    "kadence.consumer.group.classic_member",
    "kadence.deserializers",
    "kadence.net.logins",
    "kadence.net.openssl",
    "kadence.net.tls",
    "kadence.net.tokens",
    "kadence.protocol.join_group",
    "kadence.records.builder",
    "kadence.security.login",
    "kadence.security.stores",
    "kadence.serializers",
    "kadence.stopping",
}
"""What most consumers never use."""


@pytest.mark.parametrize("group_protocol", ["auto", "consumer"])
def test_a_consumer_loads_few_modules_and_none_that_is_seldom_used(group_protocol: str) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.protocol": group_protocol}
    modules = loaded(f"import kadence; kadence.Consumer({config}).close(timeout=0)")
    ours = {name for name in modules if name.split(".")[0] == "kadence"}
    assert len(ours) <= MOST_MODULES
    assert not ours & SELDOM
    assert not {name for name in ours if "sasl" in name}
    assert not modules & ({"asyncio", "ctypes"} | SLOW_TO_LOAD)


def test_the_client_makes_its_dataclasses_by_its_own_module() -> None:
    sources = Path(kadence.__file__).parent
    own = sources / "lazy_dataclasses.py"
    assert [
        source.relative_to(sources)
        for source in sources.rglob("*.py")
        if source != own and re.search(r"^(from|import) dataclasses\b", source.read_text(), re.MULTILINE)
    ] == []


@pytest.mark.parametrize("client", ["Producer", "Admin"])
def test_the_other_clients_start_without_what_is_slow_to_load(client: str) -> None:
    modules = loaded(
        f"import kadence; kadence.{client}({{'bootstrap.servers': '127.0.0.1:1'}}).close(timeout=0)"
    )
    assert not modules & ({"asyncio", "ctypes"} | SLOW_TO_LOAD)


@pytest.mark.parametrize(
    ("settings", "module"),
    [
        ("'security.protocol': 'SSL'", "kadence.net.secured"),
        ("'group.protocol': 'classic'", "kadence.consumer.group.classic_member"),
        ("'partition.assignment.strategy': 'range'", "kadence.config.values"),
        ("'value.deserializer': 'string'", "kadence.consumer.fetch.decoding"),
        (
            (
                "'security.protocol': 'SASL_PLAINTEXT', 'sasl.mechanism': 'PLAIN', 'sasl.username': 'u', "
                "'sasl.password': 'p'"
            ),
            "kadence.security.login",
        ),
        (
            (
                "'security.protocol': 'SASL_PLAINTEXT', 'sasl.mechanism': 'PLAIN', 'sasl.username': 'u', "
                "'sasl.password': 'p'"
            ),
            "kadence.connection.authentication",
        ),
    ],
)
def test_what_a_setting_needs_is_there_once_the_consumer_is_made(settings: str, module: str) -> None:
    """Its network thread, which must not wait for files, finds it loaded."""
    config = f"{{'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g', {settings}}}"
    assert module in loaded(
        f"from kadence import Consumer; consumer = Consumer({config}); consumer.close(timeout=0)"
    )


def test_making_a_consumer_loads_nothing() -> None:
    """Beside a thread that computes each module takes about 7 ms: the interpreter is given away to read it."""
    config = "{'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g'}"
    modules = loaded(
        f"from kadence import Consumer; before = set(sys.modules); Consumer({config}).close(timeout=0)"
    )
    assert modules == set()


def test_a_consumers_protocol_is_no_broker() -> None:
    """It needs its own requests only, not a table of every message."""
    modules = loaded("from kadence import Consumer")
    assert not modules & {"kadence.protocol.tables", "kadence.protocol.create_topics"}


def test_the_first_consumer_loads_its_network_side_and_no_other_client() -> None:
    modules = loaded("from kadence import Consumer; Consumer(bootstrap_servers='localhost:1').close()")
    assert "kadence.client.network_thread" in modules
    assert not {name.split(".")[1] for name in modules if name.startswith("kadence.")} & (ROOMS - {"net"})
    assert "asyncio" not in modules


def test_every_name_of_the_front_door_is_there_as_type_checkers_read_it() -> None:
    tree = ast.parse(Path(kadence.__file__).read_text())
    (typed,) = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    homes = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(kadence.__all__) == kadence._HOMES.keys()
    assert homes == kadence._HOMES
    for name in kadence.__all__:
        assert getattr(kadence, name) is getattr(importlib.import_module(kadence._HOMES[name]), name)
    assert dir(kadence) == sorted(kadence.__all__), "and nothing of how they are loaded"


def test_modules_are_attributes_and_what_is_not_there_is_said() -> None:
    assert "KafkaError" in vars(kadence.errors)
    with pytest.raises(AttributeError, match="no attribute 'Konsumer'"):
        kadence.Konsumer  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute '_private'"):
        kadence._private  # type: ignore[attr-defined]  # noqa: B018


def test_other_threads_give_way_while_modules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getswitchinterval()
    seen = []

    def imported(name: str) -> ModuleType:
        seen.append(sys.getswitchinterval())
        if name == "outer":
            loading.load("inner")
            seen.append(sys.getswitchinterval())
        if name == "broken":
            raise ImportError(name)
        return sys

    monkeypatch.setattr(loading, "import_module", imported)
    loading.load("outer")
    with pytest.raises(ImportError, match="broken"):
        loading.load("broken")
    assert all(interval < before for interval in seen)
    assert len(seen) == 4
    assert sys.getswitchinterval() == before


def test_threads_load_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two that load parts of one package meet in a circle of Python's locks, one for each module."""
    inside: list[str] = []
    most: list[int] = []
    interval = sys.getswitchinterval()

    def imported(name: str) -> ModuleType:
        inside.append(name)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.remove(name)
        return sys

    monkeypatch.setattr(loading, "import_module", imported)
    threads = [threading.Thread(target=loading.load, args=(f"{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert most == [1] * 8
    assert sys.getswitchinterval() == interval


def test_a_load_that_another_one_waits_for_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a finalizer, or a hook of the program."""

    def imported(name: str) -> ModuleType:
        if name == "outer":
            other = threading.Thread(target=loading.load, args=("inner",))
            other.start()
            other.join(PATIENCE)
            assert not other.is_alive()
        return sys

    monkeypatch.setattr(loading, "import_module", imported)
    monkeypatch.setattr(loading, "_PATIENCE_S", 0.01)
    assert loading.load("outer") is sys


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_child_that_is_forked_while_a_thread_loads() -> None:
    """Modules that the thread had begun would never be there."""
    code = """
import os, sys, threading, time
import kadence
loading = threading.Thread(target=lambda: kadence.Producer)
loading.start()
while "kadence.client" not in sys.modules:
    time.sleep(0)
if child := os.fork():
    loading.join()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
kadence.Producer, kadence.Consumer
os._exit(0 if sys.getswitchinterval() > 0.004 else 1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_what_a_client_loads_later_it_loads_alone() -> None:
    """Of packages that its start has not loaded, which another thread may be loading from their other end."""
    sources = Path(kadence.__file__).parent
    found = 0
    for source in sources.rglob("*.py"):
        room = source.relative_to(sources).parts[0]
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If):
                continue
            for before, each in itertools.pairwise([ast.Pass(), *node.body]):
                if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                    continue
                if not isinstance(each, ast.ImportFrom) or each.module is None:
                    continue
                later = re.match(r"kadence\.(producer|work)\b", each.module)
                if later and later[1] != room:
                    assert ast.unparse(before) == f"load('{each.module}')", f"{source}:{each.lineno}"
                    found += 1
    assert found


def test_spark_finds_the_source_and_pickles_a_stream_of_it_without_clients_and_decoding() -> None:
    rooms = {
        name.rpartition(".")[0] for name in loaded("import pyspark_kadence") if name.startswith("kadence")
    }
    assert rooms & {"kadence.config", "kadence_spark.decode", "kadence_spark.sink"} == set()
    stream = (
        "import pickle, pyspark_kadence; from pyspark.sql.datasource import CaseInsensitiveDict; "
        "options = CaseInsensitiveDict(); "
        "options.update({'kafka.bootstrap.servers': 'localhost:9092', 'subscribe': 't'}); "
        "source = pyspark_kadence.DefaultSource(options); pickle.dumps(source.streamReader(source.schema()).read)"
    )
    modules = loaded(stream)
    assert "kadence_spark.source.stream_reader" in modules
    assert (
        modules & {"kadence.admin", "kadence.net", "kadence.records", "kadence_spark.decode.batches"} == set()
    )


def test_arrow_tables_bring_no_pandas() -> None:
    make = (
        "from kadence import Broker, Consumer, Producer; broker = Broker(); at = broker.bootstrap_servers; "
        "producer = Producer(bootstrap_servers=at); producer.send('t', b'x'); producer.close(); "
        "consumer = Consumer(bootstrap_servers=at); consumer.assign({('t', 0): (0, 1)}); "
        "assert consumer.poll_arrow(60).num_rows == 1; consumer.close(); broker.close()"
    )
    modules = loaded(make)
    assert "pyarrow" in modules
    assert "pandas" not in modules
