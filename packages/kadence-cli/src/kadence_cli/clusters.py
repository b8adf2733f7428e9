"""Settings in files: those of the clusters that -c names, and those of --config. Passwords are in the environment.

The cluster file is TOML. Each table below ``clusters`` has client settings under Kafka's names:

    [clusters.prod]
    bootstrap.servers = "broker1:9093"
    security.protocol = "SASL_SSL"
    sasl.password = "${PROD_PASSWORD}"

The file of --config is TOML if its name ends with .toml, else it has lines ``KEY=VALUE``, as for Kafka's own tools and
kcat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.environment import Environment, malformed, missing
from kadence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["clusters_file", "names", "settings_in", "settings_of"]

_SERVERS: Final = "bootstrap.servers"
_SECRETS: Final = ("password", "client.secret", "jaas.config", "auth.token", "user.info", "keystore.key")
"""Name endings of settings with secret values."""


def clusters_file(variables: Mapping[str, str]) -> Path:
    """The cluster file: $KADENCE_CONFIG, else ``kadence/config.toml`` in the user's configuration folder."""
    # Loaded where there is a file.
    from pathlib import Path

    if given := variables.get("KADENCE_CONFIG"):
        return Path(given)
    home = variables.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home, "kadence", "config.toml")


def names(variables: Mapping[str, str]) -> list[str]:
    """The names of the clusters in the cluster file; none without a file.

    Raises:
        ConfigError: the file is not TOML. OSError: it cannot be read.
    """
    path = clusters_file(variables)
    return sorted(_clusters(path)) if path.exists() else []


def settings_of(cluster: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The settings of one cluster.

    Raises:
        ConfigError: no such cluster, no brokers, a variable that is not set, or the file is not TOML. OSError:
            it cannot be read.
    """
    path = clusters_file(variables)
    if not path.exists():
        raise ConfigError(f"-c {cluster}: there is no file {path}; it has a table [clusters.{cluster}]")
    known = _clusters(path)
    if cluster not in known:
        raise ConfigError(
            f"{path} has no cluster {cluster!r}; there are {', '.join(sorted(known)) or 'none'}"
        )
    settings = _filled(_flat(known[cluster], path), path, variables)
    if _SERVERS not in settings:
        raise ConfigError(f"{path}: [clusters.{cluster}] has no {_SERVERS}")
    return settings


def settings_in(file: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The settings in a file.

    Raises:
        ConfigError: a line is not ``KEY=VALUE``, a variable is not set, or a ``.toml`` is not TOML. OSError: it cannot
            be read.
    """
    from pathlib import Path

    path = Path(file)
    found = _flat(_toml(path), path) if path.suffix == ".toml" else _lines(_text(path), path)
    return _filled(found, path, variables)


def _clusters(path: Path) -> dict[str, Any]:
    found = _toml(path).get("clusters", {})
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ConfigError(f"{path}: clusters is a table of tables, as in [clusters.prod]")
    return found


def _text(path: Path) -> str:
    from kadence.security.files import warn_if_changeable

    warn_if_changeable(path, "to which brokers to connect, and how")
    try:
        # Editors on Windows write a byte order mark.
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _flat(table: Mapping[str, Any], path: Path, before: str = "") -> dict[str, str]:
    """Flatten nested tables: TOML parses ``a.b = 1`` as a table in a table."""
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = f"{before}{key}".replace("_", ".")
        if isinstance(value, dict):
            flat |= _flat(value, path, f"{name}.")
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            flat[name] = ",".join(value)
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        elif isinstance(value, str | int):
            flat[name] = str(value)
        else:
            raise ConfigError(f"{path}: {name} is a text, a number, true, false or a list of texts")
    return flat


def _lines(text: str, path: Path) -> dict[str, str]:
    found = {}
    # A backslash at the end of a line joins the next to it: JAAS settings are long.
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first = number
        line = lines[number]
        while line.endswith("\\") and number + 1 < len(lines):
            number += 1
            line = line[:-1] + lines[number]
        number += 1
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not (key and equals):
            # The line may be a secret whose "=" was mistyped, so the error does not show it.
            raise ConfigError(
                f"{path}, line {first + 1}: each line is KEY=VALUE, or a comment that begins with #"
            )
        found[key.strip()] = value.strip()
    return found


def _filled(settings: Mapping[str, str], path: Path, variables: Mapping[str, str]) -> dict[str, str]:
    if any(key.endswith(_SECRETS) and "${" not in value for key, value in settings.items()):
        from kadence.security.files import warn_if_open

        warn_if_open(path, "a secret setting")
    for key, value in settings.items():
        if lacking := missing(value, variables):
            raise ConfigError(
                f"{path}: {key} needs the environment's variable {lacking[0]}, which is not set"
            )
        if malformed(value):
            raise ConfigError(
                f"{path}: in {key} a ${{ begins no variable, which is ${{NAME}} or ${{NAME:-default}}"
            )
    return Environment(variables).fill_all(settings)
