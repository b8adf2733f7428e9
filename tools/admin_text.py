"""The calls of `Admin` and `AsyncAdmin`, made of the operations in the files of kadence.admin.

An operation is a function marked with ``@operation``. Its first parameters are the call and the deadline; it returns
``Waits`` of its result, which a shell carries. Its name, its other parameters and its docstring are those of the call,
which takes ``timeout`` as well and, where its result is `Outcomes`, ``raise_errors``. Classes and other values in the
``__all__`` of a file with operations are public, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OperationError", "operation_files", "values_of"]

_DOCUMENT = '''"""The calls of {client}. They run the operations of the same names, each in the file of its subject.

Generated from these files by tools/generate.py; do not edit. The rules are in tools/admin_text.py.
"""'''

_CLASS = '''
class {name}:
    """The base of `{client}`."""

    _shell: {shell}
'''


class OperationError(Exception):
    """A file of kadence.admin cannot be read."""


@dataclass(frozen=True)
class _Subject:
    """A file of kadence.admin: its module's name, its text, the names that it makes public, and its imports."""

    name: str
    text: str
    tree: ast.Module
    public: tuple[str, ...]
    imports: dict[str, str]

    def operations(self) -> Iterator[ast.FunctionDef]:
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and "operation" in map(ast.unparse, node.decorator_list):
                if ast.get_docstring(node) is None or _result(node) is None:
                    raise OperationError(
                        f"{self.name}.{node.name}: an operation has a docstring and returns Waits of its result"
                    )
                yield node

    def values(self) -> list[str]:
        """Public names of what is defined here and is no function."""
        return [name for name in self.public if name in self.defined()]

    def defined(self) -> set[str]:
        """Names of classes and constants."""
        found = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef)}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                found.update(map(ast.unparse, node.targets))
        return found


def values_of(folder: Path) -> dict[str, list[str]]:
    """The public values by the modules of kadence.admin that define them."""
    subjects = [*_subjects(folder), _subject(folder / "values.py")]
    return {subject.name: values for subject in subjects if (values := subject.values())}


def operation_files(folder: Path) -> dict[str, str]:
    """The two files of calls by their names. Not yet formatted."""
    subjects = list(_subjects(folder))
    return {
        "operations.py": _source(subjects, "Admin", ""),
        "async_operations.py": _source(subjects, "AsyncAdmin", "Async"),
    }


def _subjects(folder: Path) -> Iterator[_Subject]:
    for path in sorted(folder.glob("*.py")):
        if any((subject := _subject(path)).operations()):
            yield subject


def _subject(path: Path) -> _Subject:
    text = path.read_text()
    tree = ast.parse(text)
    imports: dict[str, str] = {}
    public: tuple[str, ...] = ()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            imports |= {each.name: node.module or "" for each in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            public = tuple(ast.literal_eval(node.value))
    return _Subject(path.stem, text, tree, public, imports)


def _source(subjects: list[_Subject], client: str, prefix: str) -> str:
    shell = f"{prefix}AdminShell"
    module = "kadence.admin.async_shell" if prefix else "kadence.admin.shell"
    needed = {(module, shell), ("kadence.clock", "Seconds"), ("kadence.admin.arguments", "checked")}
    calls = []
    for subject in subjects:
        for node in subject.operations():
            calls.append(_call(subject, node, is_async=bool(prefix)))
            needed |= _names(subject, node)
    return "\n".join(
        [
            _DOCUMENT.format(client=client),
            "from __future__ import annotations",
            *(f"from kadence.admin import {each.name} as _{each.name}" for each in subjects),
            *(f"from {home} import {name}" for home, name in sorted(needed)),
            f'__all__ = ["{prefix}Operations"]',
            _CLASS.format(name=f"{prefix}Operations", client=client, shell=shell),
            *calls,
        ]
    )


def _call(subject: _Subject, node: ast.FunctionDef, *, is_async: bool) -> str:
    """One method: the operation's signature and docstring, and a call of the shell."""
    given = node.args
    names = [each.arg for each in given.args[2:]]
    defaults = [None] * (len(names) - len(given.defaults)) + list(given.defaults)
    positional = [_parameter(*each) for each in zip(given.args[2:], defaults, strict=True)]
    keywords = [_parameter(*each) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    returns = ast.unparse(_result(node) or ast.Constant(None))
    has_outcomes = returns.startswith("Outcomes[")
    if has_outcomes:
        keywords.append("raise_errors: bool = True")
    parameters = ["self", *positional, "*", *keywords, "timeout: Seconds | None = None"]
    handed = [*names, *(f"{each.arg}={each.arg}" for each in given.kwonlyargs)]
    call = f"self._shell.run({', '.join(['timeout', f'_{subject.name}.{node.name}', *handed])})"
    call = f"await {call}" if is_async else call
    document = node.body[0]
    lines = subject.text.splitlines()[document.lineno - 1 : document.end_lineno]
    return "\n".join(
        [
            f"    {'async ' if is_async else ''}def {node.name}({', '.join(parameters)}) -> {returns}:",
            *(f"    {line}" if line else "" for line in lines),
            f"        return checked({call}, raise_errors)" if has_outcomes else f"        return {call}",
            "",
        ]
    )


def _result(node: ast.FunctionDef) -> ast.expr | None:
    """The type of an operation's result: what stands in its ``Waits[]``."""
    returns = node.returns
    if isinstance(returns, ast.Subscript) and ast.unparse(returns.value) == "Waits":
        return returns.slice
    return None


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = ast.unparse(argument.annotation) if argument.annotation else "object"
    return f"{argument.arg}: {kind}" + ("" if default is None else f" = {ast.unparse(default)}")


def _names(subject: _Subject, node: ast.FunctionDef) -> set[tuple[str, str]]:
    """What the types of an operation's call need, and where it comes from."""
    arguments = [*node.args.args[2:], *node.args.kwonlyargs]
    types = [each for each in (*(each.annotation for each in arguments), _result(node)) if each is not None]
    names = {each.id for kind in types for each in ast.walk(kind) if isinstance(each, ast.Name)}
    return {(subject.imports[name], name) for name in names if name in subject.imports} | {
        (f"kadence.admin.{subject.name}", name) for name in names & subject.defined()
    }
