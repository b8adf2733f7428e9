"""Loops over records: each iteration is a poll of one, a step or a whole poll. Application side.

It is compiled; the C types of the fields are in the .pxd file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import cython

from kadence._native import refuse

if not cython.compiled:
    refuse(__name__)
    from kadence.consumer.fetch._steps import Steps

__all__ = ["AsyncIteration", "Iteration"]


@cython.final
@cython.cclass
class Iteration:
    """An endless iterator over records; each is a poll of one.

    Args:
        slowly: returns the next record when a step cannot; it may wait.
    """

    def __init__(self, steps: Steps, slowly: Callable[[], Any]) -> None:
        self.steps = steps
        self.slowly = slowly

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        if self.steps is None:
            raise TypeError("an iteration cannot be created directly; iterate over a consumer with `for`")
        record: Any = self.steps.take_one()
        return self.slowly() if record is None else record


@cython.final
@cython.cclass
class AsyncIteration:
    """As `Iteration`, for ``async for``.

    Args:
        slowly: a coroutine function that returns the next record when a step cannot.
    """

    def __init__(self, steps: Steps, slowly: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.steps = steps
        self.slowly = slowly

    def __aiter__(self) -> AsyncIteration:
        return self

    def __anext__(self) -> Awaitable[Any]:
        following: Next = Next.__new__(Next)
        following.steps = self.steps
        following.slowly = self.slowly
        following.inner = None
        return following


@cython.final
@cython.freelist(8)
@cython.cclass
class Next:
    """The next record, awaited: a step when it is awaited, or else all of the slow coroutine.

    Not earlier: if it is never awaited, it has taken nothing.
    """

    steps: Steps
    slowly: Callable[[], Coroutine[Any, Any, Any]]
    inner: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Next:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        record: object = self.take()
        if record is not None:
            raise StopIteration(record)
        return self.inner.send(value)

    @cython.cfunc
    def take(self) -> object:
        """The record, if a step returns it; None: the slow coroutine will, and has been created."""
        if self.inner is None:
            if self.steps is None:
                raise TypeError(
                    "an iteration cannot be created directly; iterate over a consumer with `async for`"
                )
            record: object = self.steps.take_one()
            if record is not None:
                return record
            self.inner = self.slowly()
        return None

    def throw(self, error: Any, *rest: Any) -> Any:
        if self.inner is None:
            raise error
        return self.inner.throw(error, *rest)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()


if cython.compiled:
    # Not visible to mypy.

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_to(
        following: object, value: object, result: cython.pointer(cython.pointer(PyObject))
    ) -> cython.int:
        """As `Next.send`, for the interpreter; see awaits.h."""
        record: object = cython.cast(Next, following).take()
        if record is None:
            return PyIter_Send(cython.cast(Next, following).inner, value, result)
        Py_INCREF(record)
        result[0] = cython.cast(cython.pointer(PyObject), record)
        return 0

    kd_answer_sends(Next, send_to)
