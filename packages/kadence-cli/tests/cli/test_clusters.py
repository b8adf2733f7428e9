"""Clusters with names, and settings in files: kadence -c NAME, kadence --config FILE."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run, told

from kadence.errors import ConfigError
from kadence_broker import Broker
from kadence_cli.clusters import clusters_file, names, settings_in, settings_of

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


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "a = " + "{a=" * 5_000])
def test_a_file_that_is_nested_without_end_is_no_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
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


DEAD = """
[clusters.dead]
bootstrap.servers = ["127.0.0.1:1", "nohost.invalid:2"]
security.protocol = "SASL_PLAINTEXT"
sasl.mechanism = "PLAIN"
sasl.username = "me"
sasl.password = "hunter2"
"""


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a cluster whose addresses nobody answers."""
    path = tmp_path / "config.toml"
    path.write_text(DEAD)
    path.chmod(0o600)
    monkeypatch.setenv("KADENCE_CONFIG", str(path))
    return path


@pytest.mark.parametrize(
    "command",
    ["topics list", "groups lag g", "groups why g", "consume t", "produce t", "dead-letters list t"],
)
def test_a_cluster_that_cannot_be_reached_is_named_with_its_addresses(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, dead: Path, command: str
) -> None:
    ran = told(kadence, monkeypatch, "cannot connect to ", "-c", "dead", *command.split())
    assert (ran.status, ran.out) == (1, "")
    (line,) = (each for each in ran.err.splitlines() if "in time" not in each)
    assert line.startswith(f"kadence {command.split(maxsplit=1)[0]}: cluster 'dead' cannot be reached: ")
    assert line.endswith(f"; its addresses stand in {dead}")
    assert "127.0.0.1:1: " in line
    assert "nohost.invalid:2: " in line
    assert "hunter2" not in ran.err
    # Another broker is meant by -b.
    assert "-b HOST:PORT" not in line


def test_a_cluster_is_named_with_its_addresses_where_the_first_look_was_too_short(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, dead: Path
) -> None:
    monkeypatch.setattr("kadence_cli.reach.REACHED_S", 0.001)
    for ms in (200, 1_000, 5_000, 25_000):
        settings = ("socket.connection.setup.timeout.ms=60000", f"default.api.timeout.ms={ms}")
        ran = kadence("-c", "dead", "topics", "list", *(part for each in settings for part in ("-X", each)))
        *_, line = ran.err.splitlines()
        if "in time" not in line:  # else this machine had no time to find it out
            break
    assert line.startswith("kadence topics: cluster 'dead' cannot be reached: ")
    assert line.endswith(f"; its addresses stand in {dead}")


def test_a_cluster_of_the_environment_is_named_with_its_variable(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, dead: Path
) -> None:
    monkeypatch.setenv("KADENCE_CLUSTER", "dead")
    ran = told(kadence, monkeypatch, "cannot connect to ", "cluster")
    assert "kadence cluster: cluster 'dead' ($KADENCE_CLUSTER) cannot be reached: " in ran.err


@pytest.mark.parametrize("other", [("-b", "127.0.0.1:3"), ("-X", "bootstrap.servers=127.0.0.1:3")])
def test_other_addresses_than_those_of_the_cluster_are_not_called_so(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, dead: Path, other: tuple[str, str]
) -> None:
    ran = told(kadence, monkeypatch, "cannot connect to ", "-c", "dead", "topics", "list", *other)
    assert "'dead'" not in ran.err
    assert ran.err.endswith("; name a broker with -b HOST:PORT, or start one: kadence broker\n")


def test_doctor_names_the_cluster_that_cannot_be_reached(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, dead: Path
) -> None:
    ran = told(kadence, monkeypatch, "cannot connect to ", "-c", "dead", "doctor", "--json")
    (found,) = (row["found"] for row in ran.rows if row["check"] == "brokers")
    assert found.startswith("cluster 'dead' cannot be reached: ")


def test_a_refused_login_and_a_silent_broker_are_told_with_the_cluster(
    kadence: Run, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("KADENCE_CONFIG", str(path))
    path.write_text(DEAD.replace('["127.0.0.1:1", "nohost.invalid:2"]', f'"{broker.bootstrap_servers}"'))
    path.chmod(0o600)
    ran = kadence("-c", "dead", "topics", "list")
    assert ran.status == 1
    assert ran.err.startswith(f"kadence topics: cluster 'dead': bootstrap {broker.bootstrap_servers} ")
    assert "hunter2" not in ran.err
    # It takes connections, and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        path.write_text(f'[clusters.dead]\nbootstrap.servers = "127.0.0.1:{port}"\n')
        monkeypatch.setattr("kadence_cli.reach.REACHED_S", 0.1)
        settings = ("socket.connection.setup.timeout.ms=60000", "default.api.timeout.ms=300")
        ran = kadence("-c", "dead", "topics", "list", *(part for each in settings for part in ("-X", each)))
    first, last = ran.err.splitlines()
    assert ran.status == 1
    assert first == (
        f"kadence: cluster 'dead': 127.0.0.1:{port} did not answer in time (0.1 s); still waiting"
    )
    assert last.startswith("kadence topics: cluster 'dead'")
    assert f"127.0.0.1:{port}" in last


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
        "from kadence_cli.common import print_rows\n"
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


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
@pytest.mark.parametrize(
    ("line", "mode", "warns"),
    [
        ("sasl.password=pw", 0o644, True),
        ("sasl.password=pw", 0o600, False),
        ("sasl.password=${PW}", 0o644, False),
        ("client.id=x", 0o644, False),
    ],
)
def test_a_file_with_a_secret_that_all_users_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, mode: int, warns: bool
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=a:9092\n{line}\n")
    path.chmod(mode)
    settings_in(str(path), {"PW": "pw"})
    said = f"every user of this machine can read {path}, which holds a secret setting: chmod o-r"
    assert (said in caplog.text) == warns
