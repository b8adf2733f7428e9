"""Functions in settings that are text: ``module:function``, imported where the client is made.

Whoever may write such a setting chooses code that runs: it is worth as much as the program itself.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from functools import reduce
from typing import Any

from kadence.errors import ConfigError

__all__ = ["imported"]

_FORM = "a callable, or the text module:function such as company.logins:token"


def imported(key: str, text: str) -> Callable[..., Any]:
    """What ``module:function`` names; a function of an object or class has its name after a dot.

    Args:
        key: names the setting in errors.

    Raises:
        ConfigError: the text has another form, the module cannot be imported, or has nothing callable of this name.
    """
    module, colon, path = text.strip().partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))):
        raise ConfigError(f"{key}: {text!r} is not {_FORM}", key=key)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{key}: the module {module!r} cannot be imported here ({type(error).__name__}: {error}). Each process "
            "with a client imports it, so it must be installed, or its directory be in PYTHONPATH, wherever one runs: "
            "with Spark for the driver and for every worker (--py-files)",
            key=key,
        ) from error
    try:
        found = reduce(getattr, path.split("."), found)
    except AttributeError:
        near = difflib.get_close_matches(path, dir(found), n=1)
        hint = f"; did you mean {module}:{near[0]}?" if near else ""
        raise ConfigError(f"{key}: the module {module!r} has no {path!r}{hint}", key=key) from None
    if not callable(found):
        raise ConfigError(f"{key}: {text.strip()} is {type(found).__name__}, which cannot be called", key=key)
    return found  # type: ignore[no-any-return] # it was looked at
