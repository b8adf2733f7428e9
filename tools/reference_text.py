"""docs/reference/ for whoever reads it on GitHub: the names of each page, with the first sentence of their docstrings.

The entries themselves are comments there, which tools/site_pages.py shows to mkdocstrings as what it knows.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["entry", "names"]

ROOT: Final = Path(__file__).resolve().parent.parent
_ENTRY: Final = re.compile(r"^<!-- ::: ([\w.]+)( inherited_members)? -->$", re.MULTILINE)
"""One name of the reference, and whether calls that it inherits belong to it."""

_SITE: Final = re.compile(r'^site_url: "?([^"\s#]*)', re.MULTILINE)
"""The line of mkdocs.yml that has the site's address."""


def entry(name: str) -> str:
    """A name's entry."""
    return f"<!-- ::: {name} -->"


def names(page: Path) -> str:
    """The table of a page, and where the rest is."""
    text = page.read_text()
    site = _SITE.search((ROOT / "mkdocs.yml").read_text())
    address = site[1].rstrip("/") if site else ""
    where = (
        f"[the site]({address}/reference/{page.stem}.html)"
        if address
        else "the site, which `make site` builds,"
    )
    rows = ["| name | what it is |", "|---|---|"]
    first = ""
    for found in _ENTRY.finditer(text):
        first = first or found[1]
        rows += _rows(found[1], with_calls=bool(found[2]))
    told = (
        f"Parameters, returns and errors are in the docstrings: `help({first})`, or {where} has them all. Calls stand "
        "below their class."
    )
    return "\n".join([told, "", *rows])


def _rows(name: str, *, with_calls: bool) -> list[str]:
    module, _, last = name.rpartition(".")
    found = importlib.import_module(module)
    what = getattr(found, last)
    shown = f"{last}{_arguments(what)}" if inspect.isfunction(what) else last
    # A text or a mapping has only the docstring of its type.
    text = _below(found, last) if isinstance(what, str | Mapping) else inspect.getdoc(what)
    rows = [f"| `{shown}` | {_first_sentence(text)} |"]
    if not (with_calls and isinstance(what, type)):
        return rows
    for each in dir(what):
        # A name of another client is there to say what to call instead, and is no attribute.
        member = getattr(what, each, None)
        if each.startswith("_") or not (callable(member) or isinstance(member, property)):
            continue
        form = f".{each}{_arguments(member)}" if callable(member) else f".{each}"
        rows.append(f"| `{form}` | {_first_sentence(inspect.getdoc(member))} |")
    return rows


def _below(module: ModuleType, name: str) -> str | None:
    """The text below the assignment of a value; None if there is none, or another module assigns it."""
    for statement, after in pairwise(ast.parse(inspect.getsource(module)).body):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=found)), ast.Expr(value=ast.Constant(value=str(text))) if (
                found == name
            ):
                return text
    return None


def _arguments(function: object) -> str:
    """Names of its parameters; those with a default in brackets, as a help text has them."""
    try:
        parameters = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "()"
    marks: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    told = [
        f"{marks.get(each.kind, '')}{each.name}"
        + ("=" if each.default is not inspect.Parameter.empty else "")
        for each in parameters
        if each.name not in ("self", "cls")
    ]
    return f"({', '.join(told)})"


def _first_sentence(text: str | None) -> str:
    paragraph = (text or "").split("\n\n")[0]
    if not paragraph:
        return "A type, for annotations."
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z`])", " ".join(paragraph.split()))[0].rstrip(":.") + "."
    return sentence.replace("``", "`").replace("|", "\\|")
