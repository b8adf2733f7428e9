"""Checks values against JSON Schemas within bounds of time and memory that neither the value nor the schema can exceed.

jsonschema does the checking. Here every schema that it applies to a part of a value is counted, and so is the work of a
single keyword. Expensive keywords have our own implementation: those with regular expressions, those that compare whole
values, and ``unevaluated…``. A keyword reports one error only, without a text, which would contain the whole value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final
from urllib.parse import urljoin

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7, lookup_recursive_ref, specification_with

from kadence_schemas.expressions import Expressions
from kadence_schemas.steps import Steps, spend

__all__ = ["BoundedSchema"]

_SCHEMA_STEPS_A_BYTE: Final = 20
"""More steps for each byte of a schema: it is checked once, against its draft's, which multiplies no choices."""

_NOT_PASSED: Final = frozenset(("$defs", "const", "default", "definitions", "enum", "examples"))
"""Keywords whose contents no check walks through."""

_REFUSED: Final = jsonschema.exceptions.ValidationError
_Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


class BoundedSchema:
    """A schema that values are checked against.

    Args:
        schema: parsed. references: those that it may refer to, by name, parsed.

    Raises:
        TooManyStepsError: its own check takes too many steps. Exception: it is not a JSON Schema; any Python error.
    """

    def __init__(self, schema: Any, references: Mapping[str, Any]) -> None:
        # An address that is not among the references is not fetched: the author of a schema could direct our requests.
        registry: Any = SPECIFICATIONS.combine(Registry())
        kind = jsonschema.validators.validator_for(schema)
        specification = specification_with(kind.ID_OF(kind.META_SCHEMA))
        root = specification.create_resource(schema)
        address = root.id() or ""
        for name, found in references.items():
            resource = Resource.from_contents(found, default_specification=DRAFT7)
            # A name that is not an address is relative to the schema's own, as in Java.
            for each in {name, urljoin(address, name)}:
                registry = registry.with_resource(each, resource)
        self._notes = _Notes()
        self._check_schema(kind, schema)
        # Find all named parts at once; otherwise each look-up would search for them.
        resolver = registry.with_resource(address, root).crawl().resolver(address)
        self._validator = _bounded(kind)(schema, registry=registry, _resolver=resolver)
        self._weight = self._notes.weight(schema)

    def refusal(self, value: Any) -> tuple[str, str] | None:
        """The keyword that a value violates, and its place in the schema; None: the value is valid.

        Raises:
            TooManyStepsError: the check takes too many steps. Exception: the schema cannot be used, for example because
                of an unresolvable reference; any Python error.
        """
        with Steps(value, self._notes):
            spend(self._weight)
            found = next(self._validator.iter_errors(value), None)
        if found is None:
            return None
        return str(found.validator), "/".join(map(str, list(found.absolute_schema_path)[:-1]))

    def _check_schema(self, kind: Any, schema: Any) -> None:
        checker = jsonschema.FormatChecker(formats=())
        checker.checks("regex", raises=Exception)(self._is_expression)
        own = _bounded(jsonschema.validators.validator_for(kind.META_SCHEMA, default=kind))
        with Steps(schema, self._notes, _SCHEMA_STEPS_A_BYTE):
            problem = next(
                own(kind.META_SCHEMA, registry=SPECIFICATIONS, format_checker=checker).iter_errors(schema),
                None,
            )
        if problem is not None:
            raise problem

    def _is_expression(self, text: Any) -> bool:
        return not isinstance(text, str) or self._notes.expressions.made(text) is not None


class _Notes:
    """Facts about a schema's parts."""

    def __init__(self) -> None:
        self.expressions = Expressions()
        self.weights: dict[int, int] = {}
        self._members: dict[tuple[int, str], tuple[Any, frozenset[str]]] = {}

    def weight(self, schema: Any) -> int:
        """The steps of applying a schema: one, and one for every ten items that its keywords go through."""
        found = self.weights.get(id(schema))
        if found is None:
            found = 1
            if isinstance(schema, dict):
                found += sum(_size(each, 2) for name, each in schema.items() if name not in _NOT_PASSED) // 10
            self.weights[id(schema)] = found
        return found

    def members(self, schema: Any, keyword: str, values: list[Any]) -> frozenset[str]:
        """The values of ``enum`` or ``const`` in a schema, as canonical texts."""
        key = (id(schema), keyword)
        if key not in self._members:
            # The schema is kept alive, so that no other object gets its id.
            self._members[key] = (schema, frozenset(map(_canonical, values)))
        return self._members[key][1]


def _size(value: Any, depth: int) -> int:
    if not depth or not isinstance(value, dict | list):
        return 1
    inside = value.values() if isinstance(value, dict) else value
    return 1 + sum(_size(each, depth - 1) for each in inside)


@cache
def _bounded(kind: Any) -> Any:
    """A draft's validator, counted."""
    keywords = {**kind.VALIDATORS, **{name: own for name, own in _OWN.items() if name in kind.VALIDATORS}}
    made: Any = jsonschema.validators.extend(
        kind, {name: _first(name, each) for name, each in keywords.items()}
    )
    inherited = made.evolve

    def evolve(validator: Any, **changes: Any) -> Any:
        schema = changes.get("schema", validator.schema)
        # Inlined `spend` and `weight`, because this runs for every part of a value.
        steps = Steps.now()
        steps.left -= steps.notes.weights.get(id(schema)) or steps.notes.weight(schema)
        if steps.left < 0:
            steps.exceed()
        evolved = inherited(validator, **changes)
        if type(evolved) is made:
            return evolved
        # The schema names a draft.
        return _bounded(evolved.__class__)(
            schema,
            registry=evolved._registry,
            _resolver=evolved._resolver,
            format_checker=evolved.format_checker,
        )

    made.evolve = evolve
    return made


def _first(name: str, keyword: _Keyword) -> _Keyword:
    """A keyword that reports only its first error, without a text, and counts its steps."""
    price = _PRICES.get(name)

    def first(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any] | None:
        if price is not None:
            spend(price(argument, instance))
        errors = keyword(validator, argument, instance, schema)
        return None if errors is None else map(_paid, islice(errors, 1))

    return first


def _paid(error: Any) -> Any:
    spend(len(error.message) // 100)
    error.message, error.context = "", []
    return error


_PRICES: Final[dict[str, Callable[[Any, Any], int]]] = {
    # A pointer is followed from its beginning for each of its parts.
    "$ref": lambda argument, instance: 2 + str(argument).count("/") ** 2 // 10,
    "$dynamicRef": lambda argument, instance: 2 + str(argument).count("/") ** 2 // 10,
    "contains": lambda argument, instance: (
        len(instance) * _size(argument, 3) if isinstance(instance, list) else 0
    ),
}


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _is_found(pattern, instance):
        yield _REFUSED("")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, inner in patterns.items():
            for name, value in instance.items():
                if _is_found(pattern, name):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in properties or any(_is_found(pattern, name) for pattern in patterns):
            continue
        if isinstance(argument, dict):
            yield from validator.descend(value, argument, path=name)
        elif not argument:
            yield _REFUSED("")


def _unique_items(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if argument and isinstance(instance, list) and len(set(map(_canonical, instance))) < len(instance):
        yield _REFUSED("")


def _enum(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if _canonical(instance) not in Steps.now().notes.members(schema, "enum", argument):
        yield _REFUSED("")


def _const(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if _canonical(instance) not in Steps.now().notes.members(schema, "const", [argument]):
        yield _REFUSED("")


def _unevaluated_items(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, list) and len(_evaluated(validator, instance, schema)) < len(instance):
        yield _REFUSED("")


def _unevaluated_properties(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        evaluated = _evaluated(validator, instance, schema)
        for name, value in instance.items():
            if name not in evaluated and not _is_of(validator, value, argument):
                yield _REFUSED("")


def _is_found(pattern: str, text: str) -> bool:
    expressions: Expressions = Steps.now().notes.expressions
    return expressions.search(pattern, text)


def _is_of(validator: Any, value: Any, schema: Any) -> bool:
    return next(validator.descend(value, schema), None) is None


def _evaluated(validator: Any, instance: Any, schema: Any) -> set[Any]:
    """The names of an object, or the indexes of an array, that a schema has evaluated."""
    if not isinstance(schema, dict):
        return set()
    spend(1 + len(instance) // 10)
    of_own_type = _evaluated_places if isinstance(instance, list) else _evaluated_names
    found: set[Any] = of_own_type(validator, instance, schema)
    for resolved in _referred(validator, schema):
        there = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
        found |= _evaluated(there, instance, resolved.contents)
    for inner in _applied(validator, instance, schema):
        found |= _evaluated(validator, instance, inner)
    return found


def _referred(validator: Any, schema: Any) -> Iterator[Any]:
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema and keyword in validator.VALIDATORS:
            yield validator._resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema and "$recursiveRef" in validator.VALIDATORS:
        yield lookup_recursive_ref(validator._resolver)


def _applied(validator: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """The schemas inside a schema that apply to the same value."""
    for keyword in ("allOf", "oneOf", "anyOf"):
        yield from (each for each in schema.get(keyword, ()) if _is_of(validator, instance, each))
    for name, inner in schema.get("dependentSchemas", {}).items():
        if name in instance:
            yield inner
    if "if" in schema:
        holds = _is_of(validator, instance, schema["if"])
        if holds:
            yield schema["if"]
        following = schema.get("then" if holds else "else")
        if following is not None:
            yield following


def _evaluated_names(validator: Any, instance: dict[str, Any], schema: Any) -> set[str]:
    found = set(schema.get("properties", {}).keys() & instance.keys())
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            found |= {name for name, value in instance.items() if _is_of(validator, value, schema[keyword])}
    for pattern in schema.get("patternProperties", ()):
        found |= {name for name in instance if _is_found(pattern, name)}
    return found


def _evaluated_places(validator: Any, instance: list[Any], schema: Any) -> set[int]:
    everywhere = range(len(instance))
    items = schema.get("items")
    if items is not None and (not isinstance(items, list) or "additionalItems" in schema):
        return set(everywhere)
    found = {
        place for place in everywhere if place < max(len(items or ()), len(schema.get("prefixItems", ())))
    }
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            found |= {place for place in everywhere if _is_of(validator, instance[place], schema[keyword])}
    return found


def _canonical(value: Any) -> str:
    """A text that is the same for values that JSON Schema considers equal: 1 and 1.0, and objects in any order.

    A text, because a writer could choose numbers with equal hashes.
    """
    if isinstance(value, str):
        return f"{len(value)}:{value}"
    if value is None or isinstance(value, bool):
        return f"{value};"
    if isinstance(value, int | float):
        return _canonical_number(value)
    if isinstance(value, dict):
        return _joined("{", [_canonical(name) + _canonical(value[name]) for name in sorted(value)])
    if isinstance(value, list | tuple):
        return _joined("[", list(map(_canonical, value)))
    return f"{value!r};"


def _joined(kind: str, parts: list[str]) -> str:
    text = kind + "".join(parts) + ";"
    spend(len(parts) + len(text) // 100)
    return text


def _canonical_number(value: float) -> str:
    try:
        number = float(value)
    except OverflowError:
        return f"{int(value):x};"
    # 0.0 is added, or -0.0 would not be 0.
    return f"{number + 0.0!r};" if number == value or number != number else f"{int(value):x}x;"  # noqa: PLR0124


_OWN: Final[dict[str, _Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "enum": _enum,
    "const": _const,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}
