"""Our dataclasses: made as the standard ones are, and what anybody may do with a dataclass works with them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from kadence import lazy_dataclasses

ours, standard = lazy_dataclasses, dataclasses
KINDS = pytest.mark.parametrize("module", [ours, standard], ids=["ours", "standard"])


def made(module: Any) -> Any:
    """The same classes by either module."""
    dataclass, field = module.dataclass, module.field

    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        LIMIT: ClassVar[int] = 5

        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below zero")

        @property
        def total(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True, slots=True)
    class Deep(Point):
        z: int = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named(Point):
        label: str = "none"
        y: int = 7

    @dataclass(slots=True)
    class Loose:
        a: int
        b: int = 0

    @dataclass(slots=True, eq=False)
    class Single:
        a: int = 0

    return {cls.__name__: cls for cls in (Point, Deep, Named, Loose, Single)}


@lazy_dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """One that pickle finds."""

    row: int
    column: int = 0


@KINDS
def test_it_is_made_from_arguments_by_place_and_name_and_from_defaults(module: Any) -> None:
    point, deep = made(module)["Point"], made(module)["Deep"]

    assert (point(1).x, point(1).y, point(1).names, point(1).secret) == (1, 2, [], "s")
    assert point(1).names is not point(1).names
    assert point(1, y=5, names=["n"]).names == ["n"]
    assert (deep(1, 2, [], "s", 9).z, deep(4).z, deep(4).total) == (9, 3, 6)


@KINDS
@pytest.mark.parametrize(
    "call", [lambda c: c(), lambda c: c(1, 2, [], "s", 5), lambda c: c(1, q=2), lambda c: c(1, x=2)]
)
def test_wrong_arguments_are_refused_in_the_words_of_python(
    module: Any, call: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        call(made(module)["Point"])


@KINDS
def test_what_comes_after_the_constructor_may_refuse(module: Any) -> None:
    with pytest.raises(ValueError, match="below zero"):
        made(module)["Deep"](-1)


@KINDS
def test_keyword_only_fields_are_given_by_name_alone(module: Any) -> None:
    named = made(module)["Named"]

    assert (named(1, label="l").label, named(1, label="l").y) == ("l", 7)
    with pytest.raises(TypeError):
        named(1, [], "s", "l")
    assert named.__match_args__ == ("x", "names", "secret")


@KINDS
def test_equality_hash_and_text_have_the_fields_that_take_part(module: Any) -> None:
    kinds = made(module)
    point, deep, loose, single = kinds["Point"], kinds["Deep"], kinds["Loose"], kinds["Single"]

    assert point(1, secret="a") == point(1, secret="b")
    assert point(1) != point(2)
    assert point(1) != deep(1)
    assert deep(1) == deep(1)
    assert hash(point(1, names=())) == hash(point(1, 2, (), "other"))
    assert repr(point(1)) == "made.<locals>.Point(x=1, y=2, names=[])"
    assert (loose(1) == loose(1), loose(1) == loose(2), loose.__hash__) == (True, False, None)
    assert single(1) != single(1)
    assert len({single(1), single(1)}) == 2


@KINDS
def test_a_frozen_one_does_not_change(module: Any) -> None:
    point = made(module)["Point"](1)

    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    loose = made(module)["Loose"](1)
    loose.a = 5
    assert loose.a == 5
    assert not hasattr(point, "__dict__")


@KINDS
def test_the_standard_module_takes_it_for_one_of_its_own(module: Any) -> None:
    point: Any = made(module)["Point"]
    fields: Any = dataclasses.fields

    assert hasattr(point, "__dataclass_fields__")
    assert [each.name for each in fields(point)] == ["x", "y", "names", "secret"]
    assert [each.type for each in fields(point(1))] == ["int", "int", "list[str]", "str"]
    assert fields(point)[0].default is dataclasses.MISSING
    assert fields(point)[2].default_factory is list
    assert dataclasses.replace(point(1), y=6) == point(1, 6)
    assert dataclasses.asdict(point(1)) == {"x": 1, "y": 2, "names": [], "secret": "s"}
    with pytest.raises(TypeError):
        dataclasses.replace(point(1), q=6)


@KINDS
def test_a_standard_dataclass_may_inherit_from_it(module: Any) -> None:
    point: Any = made(module)["Point"]

    @dataclasses.dataclass(frozen=True)
    class Mine(point):  # type: ignore[misc]
        more: int = 4

    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclasses.dataclass(type("Loose", (point,), {}))
    assert (Mine(1).total, Mine(1, more=6).more, Mine(1) == Mine(1)) == (3, 6, True)
    assert dataclasses.replace(Mine(1), more=8) == Mine(1, more=8)
    assert copy.copy(Mine(1, more=9)).more == 9
    assert repr(Mine(1)).endswith(".Mine(x=1, y=2, names=[], more=4)")


def test_a_plain_class_that_inherits_may_have_attributes_of_its_own() -> None:
    point: Any = made(ours)["Point"]

    class Mine(point):  # type: ignore[misc]
        pass

    mine = Mine(1)
    mine.more = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        mine.x = 2
    assert (mine.more, mine == Mine(1)) == (2, True)


@KINDS
def test_match_and_signature_and_types_know_its_fields(module: Any) -> None:
    point = made(module)["Point"]

    match point(1):
        case point(x, y, secret="s"):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("it does not match")
    shown = inspect.signature(point)
    assert list(shown.parameters) == ["x", "y", "names", "secret"]
    assert shown.parameters["y"].default == 2
    assert typing.get_type_hints(point.__init__)["x"] is int
    assert point.__init__.__qualname__ == "made.<locals>.Point.__init__"
    assert point.__doc__ == "A place."


def test_ours_are_copied_pickled_and_replaced() -> None:
    place = Place(1, 2)

    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(place, protocol)) == place
    assert copy.deepcopy(place) == copy.copy(place) == place
    assert ours.replace(place, column=5) == Place(1, 5)
    assert [each.name for each in ours.fields(Place)] == ["row", "column"]
    with pytest.raises(TypeError):
        ours.replace(place, q=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="not a dataclass"):
        ours.replace(5, q=1)  # type: ignore[type-var]
    if sys.version_info >= (3, 13):
        assert copy.replace(place, row=9) == Place(9, 2)


def test_nothing_is_compiled_before_it_is_used() -> None:
    point = made(ours)["Point"]
    before = {name: type(point.__dict__[name]).__name__ for name in ("__init__", "__eq__", "__hash__")}

    assert point(1) == point(1)

    after = {name: type(point.__dict__[name]).__name__ for name in before}
    assert before == {"__init__": "_Later", "__eq__": "_Later", "__hash__": "_Later"}
    assert after == {"__init__": "function", "__eq__": "function", "__hash__": "_Later"}


def test_it_does_not_load_the_standard_module() -> None:
    program = (
        "import sys; from kadence.types import Node; Node(1, 'h', 2) == Node(1, 'h', 2), repr(Node(1, 'h', 2)); "
        "print({'dataclasses', 'inspect'} & {*sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


@pytest.mark.parametrize("module", ["kadence.lazy_dataclasses", "dataclasses"])
def test_it_outlives_its_module(module: str) -> None:
    """At the end of a program finalizers run when `sys.modules` is empty."""
    program = f"""
import sys, types
made = sys.modules["made"] = types.ModuleType("made")
exec('''
from __future__ import annotations
from {module} import dataclass
@dataclass(frozen=True, slots=True)
class Place:
    row: int
''', vars(made))
Place = made.Place
del made
class AtTheEnd:
    def __del__(self, Place=Place, modules=sys.modules):
        assert "made" not in modules
        print(Place(1) == Place(1), hash(Place(1)) == hash(Place(1)), Place(1))
at_the_end = AtTheEnd()
at_the_end.itself = at_the_end
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "True True Place(row=1)\n", ended.stderr
