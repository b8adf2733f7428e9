"""Clusters with names, and settings in files: kadence -c NAME, kadence --config FILE."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from kadence.broker import Broker
from kadence.cli.clusters import clusters_file, names, settings_in, settings_of
from kadence.errors import ConfigError

FILE = """
[clusters.prod]
bootstrap.servers = ["a:9093", "b:9093"]
security_protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.password = "${PROD_PASSWORD}"
enable.auto.commit = false
request.timeout.ms = 5000

[clusters."blue green"]
"bootstrap.servers" = "c:${PORT:-9092}"

[clusters.empty]
client.id = "x"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    return path


def variables(file: Path, **more: str) -> dict[str, str]:
    return {"KADENCE_CONFIG": str(file), **more}


def test_a_cluster_has_its_settings(file: Path) -> None:
    assert settings_of("prod", variables(file, PROD_PASSWORD="pw")) == {
        "bootstrap.servers": "a:9093,b:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.password": "pw",
        "enable.auto.commit": "false",
        "request.timeout.ms": "5000",
    }
    assert settings_of("blue green", variables(file)) == {"bootstrap.servers": "c:9092"}
    assert names(variables(file)) == ["blue green", "empty", "prod"]


@pytest.mark.parametrize(
    ("cluster", "text", "message"),
    [
        ("prdo", FILE, r"config.toml has no cluster 'prdo'; there are blue green, empty, prod"),
        ("prod", FILE, r"sasl.password needs the environment's variable PROD_PASSWORD, which is not set"),
        ("empty", FILE, r"\[clusters.empty\] has no bootstrap.servers"),
        ("prod", "[clusters", r"config.toml is not TOML"),
        ("prod", "clusters = 3", r"clusters is a table of tables"),
        ("prod", "", r"has no cluster 'prod'; there are none"),
        ("prod", "[clusters.prod]\na = 1.5", r"a is a text, a number, true, false or a list of texts"),
        ("prod", "\xff", r"is not TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, cluster: str, text: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        settings_of(cluster, variables(path))


def test_without_a_file_nothing_is_known_and_it_says_where_it_would_be(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert clusters_file(home) == tmp_path / "kadence" / "config.toml"
    assert names(home) == []
    with pytest.raises(ConfigError, match=r"there is no file .*; it has a table \[clusters.prod\]"):
        settings_of("prod", home)


def test_a_file_of_settings_as_of_kafkas_tools(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n! another\n\nsecurity.protocol=SASL_SSL\nsasl.jaas.config = Login required \\\n"
        '    username="me" \\\n    password="${PW}";\nempty=\n'
    )
    assert settings_in(str(path), {"PW": "a=b"}) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'Login required     username="me"     password="a=b";',
        "empty": "",
    }


def test_a_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("a=b\\\nc\n\n# d\nsasl.password : hunter2\n")
    with pytest.raises(ConfigError, match="line 5: each line is"):
        settings_in(str(path), {})


def test_a_mark_before_the_text_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=me\n", "utf-8-sig")
    assert settings_in(str(path), {}) == {"client.id": "me"}


@pytest.mark.parametrize("value", ["${PW", "${PROD-PW}", "${1PW}", "a${PW}${", "${}"])
def test_what_is_nearly_a_variable_is_no_password(tmp_path: Path, value: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.password={value}\n")
    with pytest.raises(ConfigError, match=r"in sasl.password a \$\{ begins no variable"):
        settings_in(str(path), {"PW": "hunter2"})


def test_a_line_that_is_none_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password hunter2\n")
    with pytest.raises(ConfigError, match="line 1: each line is KEY=VALUE") as told:
        settings_in(str(path), {})
    assert "hunter2" not in str(told.value)


def test_commands_take_a_cluster_before_and_after_them(
    kadence: Run, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What consumers, producers and registries alone have is no mistake in a file for all.
    file = tmp_path / "config.toml"
    file.write_text(
        f'[clusters.here]\nbootstrap.servers = "{broker.bootstrap_servers}"\ncompression.type = "zstd"\n'
        'auto.offset.reset = "earliest"\nschema.registry.url = "http://127.0.0.1:1"\n'
    )
    monkeypatch.setenv("KADENCE_CONFIG", str(file))
    monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert kadence("-c", "here", "topics", "create", "t").status == 0
    assert [row["topic"] for row in kadence("topics", "list", "-c", "here").rows] == ["t"]
    assert kadence("-c", "here", "produce", "t", stdin=b'{"value":"v"}\n').status == 0
    assert [row["value"] for row in kadence("consume", "t", "-c", "here", "-e").rows] == ["v"]
    assert kadence("-c", "here", "dead-letters", "list", "t").status == 0
    monkeypatch.setenv("KADENCE_CLUSTER", "here")
    assert kadence("topics", "list").status == 0
    # Brokers on the command line are meant, whatever the file says.
    assert kadence("topics", "list", "-b", "127.0.0.1:1").status == 1
    refused = kadence("topics", "list", "-c", "there")
    assert (refused.status, "no cluster 'there'; there are here" in refused.err) == (2, True)


def test_commands_take_a_file_of_settings(kadence: Run, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("request.timeout.ms=many\n")
    told = kadence("--config", str(path), "topics", "list")
    assert (told.status, "request.timeout.ms" in told.err) == (2, True)
    path.write_text("request.timeuot.ms=1\n")
    assert "request.timeout.ms" in kadence("--config", str(path), "topics", "list").err
    path.write_text("request.timeout.ms=1000\n")
    assert kadence("--config", str(path), "topics", "create", "t", "--config", "retention.ms=1").status == 0
    assert kadence("--config", "/nowhere", "topics", "list").status == 1


@pytest.mark.parametrize(
    "options",
    [("-c", "", "topics", "list"), ("--config", "", "topics", "list"), ("topics", "list", "-c", "")],
)
def test_an_empty_name_is_no_other_cluster(
    kadence: Run, file: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("KADENCE_CONFIG", str(file))
    monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", "localhost:1")
    ran = kadence(*options)
    assert ran.status != 0
    assert "localhost:1" not in ran.err


def test_the_file_of_settings_stands_before_the_command(kadence: Run) -> None:
    ran = kadence("topics", "list", "--config", "client.properties")
    assert ran.status == 2
    assert "there is no option '--config'; it stands before the command: kadence --config FILE" in ran.err


def test_a_wrong_setting_is_told_with_its_file(
    kadence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[clusters.prod]\nbootstrap.servers = "a:1"\nsasl.pasword = "hunter2"\n')
    monkeypatch.setenv("KADENCE_CONFIG", str(path))
    ran = kadence("-c", "prod", "topics", "list")
    assert ran.status == 2
    assert "did you mean 'sasl.password'?" in ran.err
    assert f"settings were taken from {path}" in ran.err
    assert "hunter2" not in ran.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(kadence: Run, shell: str) -> None:
    pytest.importorskip("argcomplete")
    ran = kadence("completion", shell)
    assert ran.status == 0
    assert "kadence" in ran.out
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=ran.out, text=True, check=False).returncode == 0


def on_a_terminal(rows: int, pager: str) -> str:
    """What a terminal of ten lines shows of a table."""
    program = (
        "from kadence.cli.common import print_rows\n"
        f"print_rows([{{'n': n}} for n in range({rows})], as_json=False)\nprint('end')\n"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "LINES": "10", "COLUMNS": "40", "KADENCE_PAGER": pager}
    with subprocess.Popen([sys.executable, "-c", program], stdout=theirs, env=environment):
        os.close(theirs)
        shown = b""
        # At the end of its last writer a terminal has an error in place of an end.
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:
                break
    os.close(ours)
    return shown.decode()


def test_a_long_table_goes_through_the_pager() -> None:
    assert on_a_terminal(20, "sed s/^/paged:/").count("paged:") == 21
    assert "paged" not in on_a_terminal(3, "sed s/^/paged:/")
    # Without a pager, or one that ends before it has read everything, nothing is lost of what follows.
    assert on_a_terminal(20, "").split() == [*(["\x1b[1m", "n\x1b[0m"]), *map(str, range(20)), "end"]
    assert on_a_terminal(20, "/nowhere").split()[-1] == "end"
    assert on_a_terminal(20, "true").split() == ["end"]
