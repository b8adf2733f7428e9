"""Parses a pipeline's file to a `Pipeline`, or to all its mistakes, with the given values, lines, and allowed values.

It does not run the pipeline or ask brokers. `checks` then applies the source's own rules.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

from kadence.environment import missing
from kadence.errors import ConfigError
from kadence_spark.pipeline.model import ANY_KEYS, Kind, Pipeline, keys, required
from kadence_spark.pipeline.positions import Path, line_of, positions

__all__ = ["Document", "Mistake", "PipelineFileError", "dotted", "parse", "read"]


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake in a file.

    Attributes:
        file: as it was named. line: from 1. key: dotted, with [n] for elements of lists from 0; empty for the file as
            a whole. text: the given value, the allowed ones, advice. path: the key as steps.
    """

    file: str
    line: int
    key: str
    text: str
    path: Path = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


class PipelineFileError(ConfigError):
    """A pipeline's file has mistakes: ``mistakes`` has them all, in the order of the file."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.mistakes,))


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    Attributes:
        pipeline: None if there are mistakes.
        lines: the line of each key.
        draft: the pipeline without the wrong keys, to check the others; None: the file is not TOML.
        wrong: these keys, and the missing ones.
    """

    file: str
    pipeline: Pipeline | None
    mistakes: list[Mistake]
    lines: Mapping[Path, int]
    draft: Pipeline | None = None
    wrong: frozenset[Path] = frozenset()

    def mistake(self, path: Path, text: str) -> Mistake:
        """A mistake at a key."""
        return Mistake(self.file, line_of(path, dict(self.lines)), dotted(path), text, path)


def read(file: str | os.PathLike[str], variables: Mapping[str, str] | None = None) -> Document:
    """Read a file.

    Args:
        variables: the environment; None: that of the process.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    name = os.fspath(file)
    try:
        text = FilePath(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ConfigError(f"the pipeline's file {name!r} cannot be read: {reason}") from None
    return parse(text, name, os.environ if variables is None else variables)


def parse(text: str, file: str, variables: Mapping[str, str]) -> Document:
    """Read the text of a file; see `read`."""
    text = text.replace("\r\n", "\n")
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        return Document(file, None, [_no_toml(file, text, str(problem))], {})
    lines = positions(text)
    walk = _Walk(file, lines, variables)
    given.setdefault("name", _name_of(file))
    draft = walk.table(Pipeline, given, ())
    pipeline = None if walk.mistakes else draft
    return Document(file, pipeline, sorted(walk.mistakes), lines, draft, frozenset(walk.paths))


def dotted(path: Path) -> str:
    """A path in the notation of the file: expect[0].action."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _no_toml(file: str, text: str, problem: str) -> Mistake:
    place = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)", problem)
    line = int(place.group(1)) if place and place.group(1) else text.count("\n") + 1
    column = f", column {place.group(2)}" if place and place.group(2) else ""
    said = problem[: place.start()] if place else problem
    if said == "Cannot overwrite a value":
        said += (
            "; a key that is a value and a table at once, such as sql.catalog.x, stands in quotes as a value"
        )
    return Mistake(file, line, "", f"this is no TOML{column}: {said}")


def _name_of(file: str) -> str:
    """The default name of a pipeline: that of its file."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", FilePath(file).stem)
    return stem if stem[:1].isalpha() else f"pipeline-{stem}"


_NONE: Final = (None, Kind("", "none"))


class _Walk:
    """Checks tables against their classes, and collects all mistakes."""

    def __init__(self, file: str, lines: dict[Path, int], variables: Mapping[str, str]) -> None:
        self._file = file
        self._lines = lines
        self._variables = variables
        self.mistakes: list[Mistake] = []
        self.paths: list[Path] = []

    def wrong(self, path: Path, text: str, missing: str | None = None) -> None:
        """Note a mistake at a key, or a missing key at its table."""
        self.mistakes.append(Mistake(self._file, line_of(path, self._lines), dotted(path), text))
        self.paths.append(path if missing is None else (*path, missing))

    def table(self, of: type, given: Any, path: Path) -> Any:
        """An instance of the class, without wrong keys."""
        if not isinstance(given, dict):
            self.wrong(path, f"{_shown(given)} is no table; write [{dotted(path)}] with keys below it")
            return _blank(of)
        known = keys(of)
        rest = next(
            (name for name, (_, kind) in known.items() if kind.shape == ANY_KEYS and name == "options"), None
        )
        values: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in given.items():
            is_dotted = (
                isinstance(value, dict) and rest is not None and known.get(name, _NONE)[1].shape == "text"
            )
            if name in known and not is_dotted:
                values[name] = self.value(known[name][1], value, (*path, name))
                if (*path, name) in self.paths and known[name][1].of is None:
                    del values[name]
            elif is_dotted or (rest is not None and not _is_near(name, known)):
                # schema.registry.url begins with the name of the key schema.
                others[name] = value
            else:
                self.wrong((*path, name), _unknown(name, known))
        if rest is not None:
            values[rest] = {**values.get(rest, {}), **self.settings(others, path)}
        for name, (each, kind) in known.items():
            if required(each) and name not in given:
                shown = f"[{name}]" if kind.shape == "table" else name
                self.wrong(path, f"{shown} is missing: {kind.doc}", name)
        return _blank(of, values)

    def value(self, kind: Kind, given: Any, path: Path) -> Any:
        """A checked value; anything where it is wrong as a whole."""
        match kind.shape:
            case "table":
                assert kind.of is not None
                return self.table(kind.of, given, path)
            case "tables":
                return self._tables(kind, given, path)
            case "any_keys":
                return self._settings_table(given, path)
            case "boolean":
                if not isinstance(given, bool):
                    self.wrong(path, f"{_shown(given)} is not true or false")
                return given
            case "texts":
                if (
                    not isinstance(given, list)
                    or not given
                    or not all(isinstance(each, str) for each in given)
                ):
                    self.wrong(path, f'{_shown(given)} is no list of texts, such as ["one", "two"]')
                    return ()
                texts = tuple(self._text(kind, each, (*path, place)) for place, each in enumerate(given))
                if any(each[:-1] == path for each in self.paths):
                    self.paths.append(path)
                return texts
            case _:
                return self._text(kind, given, path)

    def _text(self, kind: Kind, given: Any, path: Path) -> str:
        if not isinstance(given, str):
            self.wrong(path, f"{_shown(given)} is not {kind.allowed}")
            return ""
        if kind.choices and given not in kind.choices:
            near = difflib.get_close_matches(given, kind.choices, n=1)
            advice = f"did you mean {near[0]!r}? " if near else ""
            self.wrong(path, f"{given!r} is not known; {advice}allowed are {', '.join(kind.choices)}")
        elif kind.pattern is not None and kind.pattern.fullmatch(given) is None:
            self.wrong(path, f"{given!r} is not {kind.allowed}")
        elif not given.strip():
            self.wrong(path, "is empty")
        self._variables_of(given, path)
        return given

    def _variables_of(self, text: str, path: Path) -> bool:
        """Check that all variables of a text are set."""
        names = missing(text, self._variables)
        for name in names:
            self.wrong(
                path,
                f"the environment has no variable {name}; set it, or give a default as in ${{{name}:-text}}",
            )
        return not names

    def _tables(self, kind: Kind, given: Any, path: Path) -> tuple[Any, ...]:
        assert kind.of is not None
        if not isinstance(given, list):
            self.wrong(path, f"is not a list of tables; write [[{dotted(path)}]] before each")
            return ()
        return tuple(self.table(kind.of, each, (*path, place)) for place, each in enumerate(given))

    def _settings_table(self, given: Any, path: Path) -> dict[str, str]:
        if not isinstance(given, dict):
            self.wrong(path, f"{_shown(given)} is no table; write [{dotted(path)}] with keys below it")
            return {}
        return self.settings(given, path)

    def settings(self, given: Mapping[str, Any], path: Path) -> dict[str, str]:
        """Flatten dotted keys, which TOML parses as nested tables, to one mapping of texts."""
        return dict(self._flat(given, path, ""))

    def _flat(self, given: Mapping[str, Any], path: Path, before: str) -> Iterator[tuple[str, str]]:
        for name, value in given.items():
            here = (*path, name)
            match value:
                case dict():
                    yield from self._flat(value, here, f"{before}{name}.")
                case bool():
                    yield before + name, str(value).lower()
                case str():
                    if self._variables_of(value, here):
                        yield before + name, value
                case int() | float():
                    yield before + name, str(value)
                case _:
                    self.wrong(here, f"{_shown(value)} is not a text, a number, true or false")


def _blank(of: type, values: Mapping[str, Any] | None = None) -> Any:
    """An instance with these values, and with empty ones for missing required keys."""
    given = dict(values or {})
    for name, (each, kind) in keys(of).items():
        if required(each) and name not in given:
            given[name] = "" if kind.of is None else _blank(kind.of)
    return of(**given)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_near(name: str, known: Mapping[str, Any]) -> bool:
    """Whether a key is a misspelt key of the table, and not an option of Spark's or the source's."""
    own = [each for each in known if each != "options"]
    return bool(difflib.get_close_matches(name, own, n=1, cutoff=0.8)) and "." not in name


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; known are {', '.join(known)}"
