"""The text of an asyncio class, made from the text of the threads' one, so that the two cannot drift apart.

What threads and asyncio do differently is written by hand, in two shells that carry the same calls. The public classes
only call the shells, so one text can be turned into the other by `Rules`, which stand in async_rules.py:

1. A method that calls what waits becomes ``async def``, and the call is awaited. What waits are the calls in
   `Rules.awaited`, and then each method of the class that became ``async def``.
2. ``with`` on one of `Rules.contexts` becomes ``async with``.
3. The words in `Rules.names` are replaced, in code and where a string is nothing but the word; imports come from
   `Rules.modules`.
4. A docstring says the same of both, except where `Rules.docstrings` or `Rules.sentences` say another thing of asyncio.

A rule that finds nothing to do is an error: the text has changed, and somebody should look at the rule.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

__all__ = ["RuleError", "Rules", "async_source"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How one module becomes its twin. The module has one class.

    Attributes:
        folder: of both modules, within packages/kadence/src/kadence. source, target: their names.
        awaited: calls that wait, as they are written, e.g. ``self._shell.run``.
        contexts: calls that give a context manager which waits.
        always_async: methods that are awaited whether they wait or not.
        names: words that are replaced. modules: where imports come from, and where those of the twin come from.
        docstrings: those that are written anew, with their quotes, by the name of what they document; "" is the
            module's. A method's is named ``Class.method``.
        sentences: of other docstrings, that say another thing of asyncio.
    """

    folder: str
    source: str
    target: str
    awaited: AbstractSet[str]
    names: Mapping[str, str]
    modules: Mapping[str, str]
    docstrings: Mapping[str, str]
    contexts: AbstractSet[str] = frozenset()
    always_async: AbstractSet[str] = frozenset()
    sentences: Mapping[str, str] = field(default_factory=dict)


class RuleError(Exception):
    """A rule has nothing to do, or meets what it was not made for."""


def async_source(text: str, rules: Rules) -> str:
    """The twin of a module. Not yet formatted."""
    tree = ast.parse(text)
    [cls] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    waiting = _waiting(cls, rules)
    edits = [
        *_async_edits(cls, waiting, rules),
        *_name_edits(text, rules),
        *_module_edits(tree, rules),
        *_docstring_edits(tree, cls, rules),
    ]
    changed = _edited(text, edits)
    for sentence, replacement in rules.sentences.items():
        if changed.count(sentence) != 1:
            raise RuleError(f"a docstring should say once: {sentence!r}")
        changed = changed.replace(sentence, replacement)
    return changed


Place = tuple[int, int]
"""A line from 1 on, and a column from 0 on, in bytes of UTF-8, as `ast` counts."""

Edit = tuple[Place, Place, str]
"""What stands from here to there becomes this."""


def _waiting(cls: ast.ClassDef, rules: Rules) -> set[str]:
    """Names of the methods that wait: they call a shell that waits, or a method that does."""
    methods = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
    calls = {method.name: {_dotted(call.func) for call in _calls(method)} for method in methods}
    found = set(rules.always_async & calls.keys())
    while True:
        waits = rules.awaited | {f"self.{name}" for name in found}
        more = {name for name, called in calls.items() if called & waits} - found
        if not more:
            return found
        found |= more


def _async_edits(cls: ast.ClassDef, waiting: set[str], rules: Rules) -> Iterator[Edit]:
    awaited = rules.awaited | {f"self.{name}" for name in waiting}
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
            if isinstance(node, ast.With) and (names := _managers(node) & rules.contexts):
                used |= names
                if len(node.items) != 1 or method.name not in waiting:
                    raise RuleError(f"line {node.lineno}: {names} stands alone, in a method that waits")
                yield _insertion((node.lineno, node.col_offset), "async ")
            within = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
            if isinstance(within, ast.Call) and _dotted(within.func) in awaited:
                raise RuleError(f"line {within.lineno}: give what was waited for a name before you use it")
    _check_used(rules.awaited | rules.contexts, used, rules)
    _check_used(rules.always_async, waiting, rules)


def _name_edits(text: str, rules: Rules) -> Iterator[Edit]:
    strings = {f'"{old}"': f'"{new}"' for old, new in rules.names.items()}
    used = set()
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        known: Mapping[str, str] = {}
        if token.type == tokenize.NAME:
            known = rules.names
        elif token.type == tokenize.STRING:
            known = strings
        if (new := known.get(token.string)) is not None:
            used.add(token.string.strip('"'))
            line = lines[token.start[0] - 1]
            first, last = (len(line[:column].encode()) for column in (token.start[1], token.end[1]))
            yield (token.start[0], first), (token.end[0], last), new
    _check_used(rules.names.keys(), used, rules)


def _module_edits(tree: ast.Module, rules: Rules) -> Iterator[Edit]:
    used = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (module := node.module or "") in rules.modules:
            used.add(module)
            start = node.col_offset + len("from ")
            yield (node.lineno, start), (node.lineno, start + len(module)), rules.modules[module]
    _check_used(rules.modules.keys(), used, rules)


def _docstring_edits(tree: ast.Module, cls: ast.ClassDef, rules: Rules) -> Iterator[Edit]:
    used = set()
    documented: dict[str, ast.Module | ast.ClassDef | ast.FunctionDef] = {"": tree, cls.name: cls}
    documented |= {f"{cls.name}.{node.name}": node for node in cls.body if isinstance(node, ast.FunctionDef)}
    for name, node in documented.items():
        if (new := rules.docstrings.get(name)) is not None and ast.get_docstring(node) is not None:
            used.add(name)
            old = node.body[0]
            yield (old.lineno, old.col_offset), (old.end_lineno or 0, old.end_col_offset or 0), new
    _check_used(rules.docstrings.keys(), used, rules)


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


def _check_used(wanted: AbstractSet[str], used: AbstractSet[str], rules: Rules) -> None:
    if unused := wanted - used:
        raise RuleError(f"rules that find nothing in {rules.source}: {sorted(unused)}")
