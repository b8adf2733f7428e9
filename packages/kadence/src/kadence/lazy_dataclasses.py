"""Dataclasses whose methods are compiled when they are first used.

The standard `dataclasses` compiles the methods of each class at its import, which was a third of a client's start, and
it imports `inspect`. Here a class costs little more than a plain one: its constructor, equality and hash are compiled
by the first use of each, and most classes are never used by a program.

Users find ordinary dataclasses: `dataclasses.fields`, `dataclasses.replace`, ``match``, pickle, `copy.replace` and
dataclasses that inherit from them work. Type checkers see the standard decorator.

It has what Kadence uses of the standard: slots always, annotations as strings (``from __future__ import annotations``),
and neither ``order``, ``init=False`` nor ``InitVar``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from reprlib import recursive_repr
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace

__all__ = ["dataclass", "field", "fields", "replace"]

T = TypeVar("T")

_UNSET: Final[Any] = object()
"""In place of a default that a field does not have, and of an argument whose default is made for each object."""

_FIELDS: Final = "__dataclass_fields__"
_PARAMETERS: Final = "__dataclass_params__"


class _Field:
    """What a class says of one of its fields, as `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "metadata", "name", "repr", "type")

    def __init__(
        self,
        default: object,
        default_factory: Any,
        repr: bool,  # noqa: A002 - the standard's name
        compare: bool,
        metadata: Mapping[str, Any],
    ) -> None:
        self.name = ""
        self.type = ""
        self.kw_only = False
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare
        self.metadata = metadata

    @property
    def is_optional(self) -> bool:
        """Whether the constructor needs no argument for it."""
        return self.default is not _UNSET or self.default_factory is not _UNSET


class _Standard:
    """``__dataclass_fields__``: the fields of a class, and the standard's for whoever asks for the attribute."""

    __slots__ = ("_frozen", "_of", "_twin", "own")

    def __init__(self, own: dict[str, _Field], frozen: bool) -> None:
        self.own = own
        self._frozen = frozen
        self._twin: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._of = owner

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return getattr(self.twin(), _FIELDS)

    def twin(self) -> Any:
        """A class with the same fields that the standard has made."""
        if self._twin is None:
            # Loaded for the first of these questions, which the standard module asks.
            import dataclasses

            namespace: dict[str, Any] = {
                each.name: dataclasses.field(
                    default=dataclasses.MISSING if each.default is _UNSET else each.default,
                    default_factory=dataclasses.MISSING
                    if each.default_factory is _UNSET
                    else each.default_factory,
                    repr=each.repr,
                    compare=each.compare,
                    metadata=each.metadata,
                    kw_only=each.kw_only,
                )
                for each in self.own.values()
            }
            namespace["__annotations__"] = {each.name: each.type for each in self.own.values()}
            namespace["__module__"] = self._of.__module__
            made = type(self._of.__name__, (), namespace)
            self._twin = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=self._frozen)(made)
        return self._twin


class _Parameters:
    """``__dataclass_params__``, which the standard looks at in the bases of a dataclass."""

    __slots__ = ("_fields",)

    def __init__(self, fields: _Standard) -> None:
        self._fields = fields

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return getattr(self._fields.twin(), _PARAMETERS)


class _Later:
    """A method that is compiled when it is first looked up, and then stands in the class in place of this."""

    __slots__ = ("_compiled", "_names", "_of")

    def __init__(self, compiled: Callable[[type, dict[str, Any]], Any], names: dict[str, Any]) -> None:
        self._compiled = compiled
        # Of its module. At its first use that may be gone from `sys.modules`: a program ends, or unloads it.
        self._names = names

    def __set_name__(self, owner: type, name: str) -> None:
        self._of = owner

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._compiled(self._of, self._names)
        method.__qualname__ = f"{self._of.__qualname__}.{method.__name__}"
        setattr(self._of, method.__name__, method)
        return method.__get__(instance, owner)


# ---------------------------------------------------------------- what is compiled


def _compiled(names: dict[str, Any], head: str, body: Iterable[str], outer: Mapping[str, object]) -> Any:
    """A method from its text. ``outer``: what it uses besides the names of its module."""
    lines = "\n".join(f"  {line}" for line in body)
    text = f"def make({', '.join(outer)}):\n def {head}:\n{lines}\n return {head.partition('(')[0]}"
    made: dict[str, Any] = {}
    # As the standard does: nothing of the text comes from outside of the class. It is compiled first: `exec` of a text
    # makes Python forget, at the end of a program, that Ctrl-C has ended it, and the exit status would be 1.
    exec(compile(text, "<dataclass>", "exec"), names, made)  # noqa: S102
    return made["make"](*outer.values())


def _init(cls: type, names: dict[str, Any]) -> Any:
    own: dict[str, _Field] = _fields_of(cls)
    setter: object = cls.__setattr__
    is_frozen = setter is _refuse_to_set
    plain = [each for each in own.values() if not each.kw_only]
    named = [each for each in own.values() if each.kw_only]
    outer: dict[str, object] = {"_unset": _UNSET}
    body = []
    for each in own.values():
        value = each.name
        if each.default_factory is not _UNSET:
            outer[f"_new_{value}"] = each.default_factory
            value = f"_new_{value}() if {value} is _unset else {value}"
        if is_frozen:
            # The descriptor of the slot writes it, past the refusal.
            outer[f"_set_{each.name}"] = getattr(cls, each.name).__set__
            body.append(f"_set_{each.name}(self, {value})")
        else:
            body.append(f"self.{each.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ["self", *(each.name for each in plain)]
    if named:
        arguments += ["*", *(each.name for each in named)]
    method = _compiled(names, f"__init__({', '.join(arguments)})", body or ["pass"], outer)
    method.__defaults__ = tuple(each.default for each in plain if each.is_optional)
    method.__kwdefaults__ = {each.name: each.default for each in named if each.is_optional}
    method.__annotations__ = {each.name: each.type for each in own.values()} | {"return": None}
    return method


def _eq(cls: type, names: dict[str, Any]) -> Any:
    return _compiled(
        names,
        "__eq__(self, other)",
        (
            "if other.__class__ is self.__class__:",
            f" return {_values(cls, 'self')} == {_values(cls, 'other')}",
            "return NotImplemented",
        ),
        {},
    )


def _hash(cls: type, names: dict[str, Any]) -> Any:
    return _compiled(names, "__hash__(self)", (f"return hash({_values(cls, 'self')})",), {})


def _values(cls: type, of: str) -> str:
    """The text of a tuple of what is compared."""
    return "(" + "".join(f"{of}.{each.name}," for each in _fields_of(cls).values() if each.compare) + ")"


# ---------------------------------------------------------------- what all classes share


def _fields_of(cls: type) -> dict[str, Any]:
    """The fields of a class by name: those of `_Field`, or the standard's if it has made a class that inherits."""
    for base in cls.__mro__:
        found = base.__dict__.get(_FIELDS)
        if found is not None:
            return found.own if type(found) is _Standard else found
    raise TypeError(f"{cls.__name__} is not a dataclass")


@recursive_repr()
def _repr(self: Any) -> str:
    cls = type(self)
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in _fields_of(cls).values() if each.repr)
    return f"{cls.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    _check_frozen(self, name, "assign to")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    _check_frozen(self, name, "delete")
    object.__delattr__(self, name)


def _check_frozen(self: Any, name: str, doing: str) -> None:
    # A plain class that inherits may have further attributes.
    if _FIELDS in type(self).__dict__ or name in _fields_of(type(self)):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {doing} field {name!r}")


def _getstate(self: Any) -> list[object]:
    return [getattr(self, name) for name in _fields_of(type(self))]


def _setstate(self: Any, state: list[object]) -> None:
    for name, value in zip(_fields_of(type(self)), state, strict=True):
        object.__setattr__(self, name, value)


def _replace(self: T, /, **changes: Any) -> T:
    """The same object with other values of these fields."""
    cls = type(self)
    return cls(**{name: changes.pop(name, getattr(self, name)) for name in _fields_of(cls)}, **changes)


# ---------------------------------------------------------------- the decorator


def _dataclass(
    *, slots: Literal[True], frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]:
    """As `dataclasses.dataclass`. ``slots`` is an argument for the type checkers: there is no other kind."""

    def made(cls: type[T]) -> type[T]:
        namespace = dict(cls.__dict__)
        names = sys.modules[cls.__module__].__dict__
        own: dict[str, _Field] = {}
        for base in cls.__mro__[-1:0:-1]:
            if _FIELDS in base.__dict__:
                own.update(base.__dict__[_FIELDS].own)
        inherited = frozenset(
            chain.from_iterable(base.__dict__.get("__slots__", ()) for base in cls.__mro__[1:])
        )
        for name, kind in cls.__annotations__.items():
            if kind.startswith("ClassVar"):
                continue
            given = namespace.pop(name, _UNSET)
            each = given if type(given) is _Field else _Field(given, _UNSET, True, True, _NO_METADATA)
            each.name, each.type, each.kw_only = name, kind, kw_only
            own[name] = each
        namespace["__slots__"] = tuple(name for name in own if name not in inherited)
        namespace["__match_args__"] = tuple(each.name for each in own.values() if not each.kw_only)
        namespace[_FIELDS] = standard = _Standard(own, frozen)
        namespace[_PARAMETERS] = _Parameters(standard)
        namespace["__qualname__"] = cls.__qualname__
        namespace["__replace__"] = _replace
        namespace.setdefault("__init__", _Later(_init, names))
        namespace.setdefault("__repr__", _repr)
        if eq:
            namespace.setdefault("__eq__", _Later(_eq, names))
            namespace.setdefault("__hash__", _Later(_hash, names) if frozen else None)
        if frozen:
            namespace["__setattr__"] = _refuse_to_set
            namespace["__delattr__"] = _refuse_to_delete
            namespace.setdefault("__getstate__", _getstate)
            namespace.setdefault("__setstate__", _setstate)
        namespace.pop("__dict__", None)
        namespace.pop("__weakref__", None)
        # A class gets its slots when it is made, so it is made anew.
        metaclass: Any = type(cls)
        return cast(type[T], metaclass(cls.__name__, cls.__bases__, namespace))

    return made


_NO_METADATA: Final[Mapping[str, Any]] = MappingProxyType({})


def _field(
    *,
    default: object = _UNSET,
    default_factory: Any = _UNSET,
    repr: bool = True,  # noqa: A002 - the standard's name
    compare: bool = True,
    metadata: Mapping[str, Any] = _NO_METADATA,
) -> Any:
    """As `dataclasses.field`."""
    return _Field(default, default_factory, repr, compare, metadata)


def _fields(of: object) -> tuple[Any, ...]:
    """As `dataclasses.fields`, for a class or an object."""
    return tuple(_fields_of(of if isinstance(of, type) else type(of)).values())


if not TYPE_CHECKING:
    dataclass, field, fields, replace = _dataclass, _field, _fields, _replace
