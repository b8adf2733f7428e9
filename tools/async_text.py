"""The text of `AsyncConsumer`, made from the text of `Consumer`, so that the two cannot drift apart.

What threads and asyncio do differently is written by hand in their shells (consumer/application/shell.py and
async_shell.py). The public classes only call the shells, so one text can be turned into the other by these rules:

1. A method that calls what waits becomes ``async def``, and the call is awaited. What waits are the calls in `AWAITED`,
   and then each method of the class that became ``async def``.
2. ``with`` on one of `CONTEXTS` becomes ``async with``.
3. The words in `NAMES` are replaced, in code and where a string is nothing but the word; imports come from `MODULES`.
4. A docstring says the same of both, except where `DOCSTRINGS` or `SENTENCES` say another thing of asyncio.

A rule that finds nothing to do is an error: the text has changed, and somebody should look at the rule.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

__all__ = ["RuleError", "async_source"]

AWAITED = {"self._shell.run", "self._shell.close"}

CONTEXTS = {"self._shell.polling"}

NAMES = {
    "Consumer": "AsyncConsumer",
    "Shell": "AsyncShell",
    "Iterator": "AsyncIterator",
    "Iteration": "AsyncIteration",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "StopIteration": "StopAsyncIteration",
}

ALWAYS_ASYNC = {"__enter__", "__exit__"}
"""Methods that are awaited whether they wait or not."""

MODULES = {"kadence.consumer.application.shell": "kadence.consumer.application.async_shell"}

DOCSTRINGS = {
    "": '''"""`AsyncConsumer`: the public API for asyncio, on the loop's own thread. Application side.

Generated from consumer.py by tools/generate.py; do not edit. The rules are in tools/async_text.py.
"""''',
    "Consumer": '''"""`Consumer` for asyncio: the same calls, awaited. Made on a running event loop, and belongs to it.

    Everything that talks to brokers happens on a network thread of its own. So a loop that something blocks keeps
    its membership for as long as max.poll.interval.ms, and no call below blocks the loop; there is no thread pool.
    One task polls; others may commit, seek or close meanwhile. Rebalances go on in the background; their callbacks run
    inside `poll`, `unsubscribe` and `close`, and they and commit callbacks may be coroutine functions.
    Cancelling an await loses no record, and commits nothing that was not returned.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "g"}``.
        settings: the same keys in snake_case, e.g. ``group_id="g"``.

    Raises:
        ConfigError: see `kadence.config`. RuntimeError: no event loop is running.

    Delivery is at least once by default: auto-commit takes only what a later poll has proved processed.
    """''',
}
"""Docstrings that are written anew, by the name of what they document; the module's has none."""

SENTENCES = {
    "listener: told of partitions that come and go; leaving it out removes an earlier one.": (
        "listener: told of partitions that come and go, by functions or coroutine functions; leaving it out\n"
        "                removes an earlier one."
    ),
    "callback: ``callback(offsets, error)`` runs inside a later call, in the order of the commits.": (
        "callback: ``callback(offsets, error)``, a function or coroutine function, runs inside a later call, in the\n"
        "                order of the commits."
    ),
}
"""Sentences of other docstrings that say more of asyncio."""


class RuleError(Exception):
    """A rule has nothing to do, or meets what it was not made for."""


def async_source(text: str) -> str:
    """The module of `AsyncConsumer`, of the module of `Consumer`. Not yet formatted."""
    tree = ast.parse(text)
    [cls] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    waiting = _waiting(cls)
    edits = [
        *_async_edits(cls, waiting),
        *_name_edits(text),
        *_module_edits(tree),
        *_docstring_edits(tree, cls),
    ]
    changed = _edited(text, edits)
    for sentence, replacement in SENTENCES.items():
        if changed.count(sentence) != 1:
            raise RuleError(f"a docstring should say once: {sentence!r}")
        changed = changed.replace(sentence, replacement)
    return changed


Place = tuple[int, int]
"""A line from 1 on, and a column from 0 on, in bytes of UTF-8, as `ast` counts."""

Edit = tuple[Place, Place, str]
"""What stands from here to there becomes this."""


def _waiting(cls: ast.ClassDef) -> set[str]:
    """Names of the methods that wait: they call a shell that waits, or a method that does."""
    methods = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
    calls = {method.name: {_dotted(call.func) for call in _calls(method)} for method in methods}
    found = ALWAYS_ASYNC & calls.keys()
    while True:
        waits = AWAITED | {f"self.{name}" for name in found}
        more = {name for name, called in calls.items() if called & waits} - found
        if not more:
            return found
        found |= more


def _async_edits(cls: ast.ClassDef, waiting: set[str]) -> Iterator[Edit]:
    awaited = AWAITED | {f"self.{name}" for name in waiting}
    used = set()
    for method in cls.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        if method.name in waiting:
            yield _insertion((method.lineno, method.col_offset), "async ")
        for call in _calls(method):
            if (name := _dotted(call.func)) in awaited:
                used.add(name)
                yield _insertion((call.lineno, call.col_offset), "await ")
        for node in ast.walk(method):
            if isinstance(node, ast.With) and (names := _managers(node) & CONTEXTS):
                used |= names
                if len(node.items) != 1 or method.name not in waiting:
                    raise RuleError(f"line {node.lineno}: {names} stands alone, in a method that waits")
                yield _insertion((node.lineno, node.col_offset), "async ")
            within = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
            if isinstance(within, ast.Call) and _dotted(within.func) in awaited:
                raise RuleError(f"line {within.lineno}: give what was waited for a name before you use it")
    _check_used(AWAITED | CONTEXTS, used)


def _name_edits(text: str) -> Iterator[Edit]:
    strings = {f'"{old}"': f'"{new}"' for old, new in NAMES.items()}
    used = set()
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        known = NAMES if token.type == tokenize.NAME else strings if token.type == tokenize.STRING else {}
        if (new := known.get(token.string)) is not None:
            used.add(token.string.strip('"'))
            line = lines[token.start[0] - 1]
            first, last = (len(line[:column].encode()) for column in (token.start[1], token.end[1]))
            yield (token.start[0], first), (token.end[0], last), new
    _check_used(set(NAMES), used)


def _module_edits(tree: ast.Module) -> Iterator[Edit]:
    used = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (module := node.module or "") in MODULES:
            used.add(module)
            start = node.col_offset + len("from ")
            yield (node.lineno, start), (node.lineno, start + len(module)), MODULES[module]
    _check_used(set(MODULES), used)


def _docstring_edits(tree: ast.Module, cls: ast.ClassDef) -> Iterator[Edit]:
    used = set()
    documented: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree), (cls.name, cls)]
    for name, node in documented:
        if (new := DOCSTRINGS.get(name)) is not None and ast.get_docstring(node) is not None:
            used.add(name)
            old = node.body[0]
            yield (old.lineno, old.col_offset), (old.end_lineno or 0, old.end_col_offset or 0), new
    _check_used(set(DOCSTRINGS), used)


def _edited(text: str, edits: list[Edit]) -> str:
    """The last edit first, so that no place moves before its edit is made."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for (first_line, first), (last_line, last), new in sorted(edits, reverse=True):
        data = data[: starts[first_line - 1] + first] + new.encode() + data[starts[last_line - 1] + last :]
    return data.decode()


def _insertion(place: Place, text: str) -> Edit:
    return place, place, text


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _managers(node: ast.With) -> set[str]:
    return {_dotted(item.context_expr.func) for item in node.items if isinstance(item.context_expr, ast.Call)}


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` as it is written; empty for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _check_used(rules: set[str], used: set[str]) -> None:
    if unused := rules - used:
        raise RuleError(f"rules that find nothing in consumer.py: {sorted(unused)}")
