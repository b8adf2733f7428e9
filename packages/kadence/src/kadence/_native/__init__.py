"""The compiled modules: x.pyx is a module of C, x.pyi its types for Python, x.pxd those for other compiled modules.

x.py is found where x.pyx is not compiled, and refuses; import-linter sees it, too, in place of what it cannot read.

Nothing here knows a room above it, so each of these modules can be loaded alone. `records` is loaded first by any of
them: where it cannot be, an ImportError says in one sentence what to do.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

__all__ = ["refuse"]

_OF_ANOTHER: Final = ("Interpreter change detected", "does not support loading in subinterpreters")
"""The errors of Cython and CPython if another interpreter of the process has loaded a module, or may load it alone."""

_CURE: Final = (
    "run python setup.py build_ext --inplace in packages/kadence of a checkout, "
    "else pip install --force-reinstall kadence"
)


def refuse(name: str, why: object = "it is not compiled") -> None:
    """Raise the ImportError of a module that has to be compiled, and is not, or not from the sources beside it."""
    raise ImportError(f"{name} cannot be loaded ({why}): {_CURE}")


def _load() -> None:
    name = "kadence._native.records"
    try:
        import_module(name)
    except Exception as error:
        if any(words in str(error) for words in _OF_ANOTHER):
            raise ImportError(
                f"{name} cannot be loaded here: only one interpreter of a process can load it, and a sub-interpreter "
                "with a lock of its own cannot. Use Kadence in one interpreter of each process; under mod_wsgi: "
                f"WSGIApplicationGroup %{{GLOBAL}}. Python says: {error}"
            ) from error
        if str(error).endswith(_CURE):
            raise
        try:
            refuse(name, error)
        except ImportError as refusal:
            raise refusal from error


_load()
