"""The lists of public names of kadence and kadence.admin.

`kadence` loads a name when it is first used. So it has each name three times: in an import that only type checkers
read, in ``__all__``, and with its module in ``_HOMES``. The first ``if TYPE_CHECKING`` is what the two lists are made
of. Its import from kadence.admin has what the files of the admin client define.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

__all__ = ["admin_source", "package_source"]


def admin_source(text: str, values: Mapping[str, Iterable[str]]) -> str:
    """kadence/admin/__init__.py: its docstring as it is, and the names. Not yet formatted.

    Args:
        values: names by the modules of kadence.admin that define them.
    """
    document = ast.get_source_segment(text, ast.parse(text).body[0])
    homes = {"admin": ["Admin"], **values}
    return "\n".join(
        [
            document or "",
            "",
            *(f"from kadence.admin.{module} import {', '.join(names)}" for module, names in homes.items()),
            f"__all__ = {[name for names in homes.values() for name in names]}",
            "",
        ]
    )


def package_source(text: str, values: Mapping[str, Iterable[str]]) -> str:
    """kadence/__init__.py with its lists made anew. Not yet formatted."""
    admin = ["Admin", *(name for names in values.values() for name in names)]
    tree = ast.parse(text)
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {each.name: node.module or "" for node in imports for each in node.names}
    homes = {name: home for name, home in homes.items() if home != "kadence.admin"}
    homes |= dict.fromkeys(admin, "kadence.admin")
    new: list[tuple[ast.stmt, str]] = [
        (node, f"    from kadence.admin import {', '.join(admin)}")
        for node in imports
        if node.module == "kadence.admin"
    ]
    for node in tree.body:
        if isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])) in ("__all__", "_HOMES"):
            value: object = sorted(homes) if name == "__all__" else dict(sorted(homes.items()))
            new.append((node, f"{name} = {value}"))
    lines = text.splitlines()
    for node, replacement in sorted(new, key=lambda each: -each[0].lineno):
        lines[node.lineno - 1 : node.end_lineno] = [replacement]
    return "\n".join(lines) + "\n"
