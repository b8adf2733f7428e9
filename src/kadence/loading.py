"""Loads the library's modules: fast even while another thread computes, and compiled or plain.

An import lets go of the interpreter several times for each file. To come back it waits until the other thread gives the
interpreter up, a switch interval of 5 ms each time: three seconds for the modules of a consumer. So other threads are
asked to give it up sooner until the modules are there.

KADENCE_EXTENSION chooses between the two forms of a module, as it does at build:

auto     (default) the compiled half where it was built, else Python
require  the compiled half, or an ImportError
off      Python
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from importlib import import_module
from types import ModuleType
from typing import Final

__all__ = ["compiled", "load"]

_MODES: Final = ("auto", "require", "off")

_OF_ANOTHER: Final = ("Interpreter change detected", "does not support loading in subinterpreters")
"""What Cython and CPython say where another interpreter of the process has loaded a module, or may load it alone."""

_INTERVAL: Final = 0.0001
_lock: Final = allocate_lock()
_loads = 0
_before = 0.0


def load(name: str) -> ModuleType:
    """Import a module. Raises what the import raises."""
    global _before, _loads  # noqa: PLW0603 - the switch interval is one for all threads, and so is this
    with _lock:
        if not _loads:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_INTERVAL, _before))
        _loads += 1
    try:
        return import_module(name)
    finally:
        with _lock:
            _loads -= 1
            if not _loads:
                sys.setswitchinterval(_before)


def compiled(name: str) -> ModuleType | None:
    """The compiled half of this full name; None where Python is to run.

    Raises:
        ImportError: KADENCE_EXTENSION is none of its words. It is ``require``, and the compiled half cannot be loaded.
            Another interpreter of this process has loaded it. Or there is one, and it does not fit the sources beside
            it: Python in its place would be many times slower without a word.
    """
    mode = os.environ.get("KADENCE_EXTENSION", "auto")
    if mode not in _MODES:
        raise ImportError(f"KADENCE_EXTENSION must be one of {', '.join(_MODES)}, not {mode!r}")
    if mode == "off":
        return None
    try:
        return import_module(name)
    except Exception as error:
        if any(words in str(error) for words in _OF_ANOTHER):
            raise ImportError(
                f"this is a sub-interpreter, and only one interpreter of a process can load {name}. Use Kadence in one "
                "interpreter of each process; under mod_wsgi: WSGIApplicationGroup %{GLOBAL}. KADENCE_EXTENSION=off "
                "does without compiled modules, but cramjam, which Kadence needs, has the same limit. Python says: "
                f"{error}"
            ) from error
        # One that the system cannot load, as of another C library, has a path. Most misfits are no ImportError at all.
        is_unloadable = isinstance(error, ImportError) and error.path is not None
        if not is_unloadable and _is_built(name):
            raise ImportError(
                f"the compiled module {name} does not match the Python files beside it ({error}); build it again: "
                "python setup.py build_ext --inplace in a checkout, else pip install --force-reinstall kadence"
            ) from error
        if mode == "require":
            raise ImportError(
                "KADENCE_EXTENSION=require, but the extension cannot be loaded "
                f"({error}); build it with: KADENCE_EXTENSION=require pip install --no-binary kadence kadence"
            ) from error
        # Nothing was built: what the source raises as plain Python says only whether Cython is installed, and which.
        return None


def _is_built(name: str) -> bool:
    """Whether a shared library has this name, not only the source of one."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import find_spec

    spec = find_spec(name)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
