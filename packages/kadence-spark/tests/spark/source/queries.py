"""Random queries over one table of Kafka's records; the same seed gives the same queries.

What a query reads is a relation: the table, a view, or a frame that is kept. Each row of a relation is a record, with
some of its columns, and the record may be there several times. So rows that are equal in topic, partition and offset
are equal, an order by these is total, and each query has one answer, with a limit too.

Casts and comparisons are those that end no query in ANSI mode: which row Spark evaluates first is its own business.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["PARTITIONS", "RECORDS", "START_MS", "STEPS_MS", "Queries", "Side", "Step"]

PARTITIONS: Final = 4
"""The last one stays empty."""

RECORDS: Final = 300

START_MS: Final = 1_700_000_000_123
STEPS_MS: Final = (0, 1, 500, 60_000, 3_600_000, 86_400_000)
"""Between the times of records."""

TABLE: Final = "records"
_PLACE: Final = ("topic", "partition", "offset")
_COLUMNS: Final = ("key", "value", *_PLACE, "timestamp", "timestampType", "headers")
"""As the source has them."""

_SCANS: Final = 4
"""So often a relation reads the table, at most."""

_NEW: Final = 8
"""How many of the newest relations are asked."""

_LAST_OFFSET: Final = 110


# ------------------------------------------------------------ what is asked, and where


@dataclass
class Side:
    """A session with the table in it, and what queries have left there."""

    session: SparkSession
    frames: dict[str, DataFrame] = field(default_factory=dict)

    @classmethod
    def of(cls, session: SparkSession, table: DataFrame) -> Self:
        side = cls(session)
        side.keep(TABLE, table)
        return side

    def keep(self, name: str, frame: DataFrame) -> None:
        self.frames[name] = frame
        frame.createOrReplaceTempView(name)


@dataclass(frozen=True)
class Step:
    """A query with one answer."""

    text: str
    answer: Callable[[Side], list[Row]]
    keeps: str = ""
    """The relation that later queries may read."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Relation:
    name: str
    columns: tuple[str, ...]
    scans: int = 1


def _sql(text: str) -> Step:
    return Step(text, lambda side: side.session.sql(text).collect())


def _view(name: str, text: str) -> Step:
    """Spark keeps the text of a view, and analyses it for each query of it."""
    made = f"create or replace temporary view {name} as {text}"

    def answer(side: Side) -> list[Row]:
        side.session.sql(made)
        side.frames[name] = side.session.table(name)
        return side.frames[name].collect()

    return Step(made, answer, name)


_Change = tuple[str, Callable[[DataFrame, Side], DataFrame]]


def _frame(name: str, origin: str, changes: list[_Change]) -> Step:
    """A frame that is kept, in the table's place or over other frames; Spark keeps what it has analysed of it."""

    def answer(side: Side) -> list[Row]:
        frame = side.frames[origin]
        for _, change in changes:
            frame = change(frame, side)
        side.keep(name, frame)
        return frame.collect()

    return Step(f"{name} = {origin}{''.join(text for text, _ in changes)}", answer, name)


def _again(name: str) -> Step:
    """The frame as it is: with the plan that its query before had."""
    return Step(f"{name}.collect()", lambda side: side.frames[name].collect())


def _counted(name: str) -> Step:
    return Step(f"{name}.count()", lambda side: [Row(count=side.frames[name].count())])


def _cached(name: str) -> Step:
    return Step(f"{name}.cache().collect()", lambda side: side.frames[name].cache().collect())


def _uncached(name: str) -> Step:
    return Step(f"{name}.unpersist().collect()", lambda side: side.frames[name].unpersist().collect())


# ------------------------------------------------------------ the queries of a seed


class Queries:
    """Those of one seed, in turn: each may ask what the ones before have left.

    Args:
        topic: the name of the table's topic.
    """

    def __init__(self, seed: int, topic: str) -> None:
        self._chance = random.Random(seed)
        self._conditions = _Conditions(self._chance, topic)
        self._table = _Relation(TABLE, _COLUMNS)
        self._kept: list[_Relation] = []
        self._cached: list[str] = []
        self._made = 0

    def take(self, count: int) -> Iterator[Step]:
        kinds = {
            self._projection: 3,
            self._aggregate: 2,
            self._groups: 2,
            self._window: 1,
            self._limited: 2,
            self._join: 3,
            self._set_operation: 3,
            self._in_subquery: 2,
            self._exists: 2,
            self._scalar: 2,
            self._with: 2,
            self._new_view: 3,
            self._new_frame: 4,
            self._old_frame: 4,
        }
        for _ in range(count):
            (kind,) = self._chance.choices(list(kinds), list(kinds.values()))
            yield kind()

    def forget(self, name: str) -> None:
        """Read this relation no more: it turned out to have no rows, and so would all that is made of it."""
        self._kept = [each for each in self._kept if each.name != name]

    # ---- what is read

    def _pick(self, most: int = _SCANS, *, needs: tuple[str, ...] = ()) -> _Relation:
        """The table as often as all others."""
        fitting = [
            each for each in self._kept[-_NEW:] if each.scans <= most and set(needs) <= set(each.columns)
        ]
        return self._chance.choice(fitting) if fitting and self._chance.random() < 0.5 else self._table

    def _where(self, relation: _Relation, prefix: str = "") -> str:
        """Mostly a condition; now and then none, so that a query without filters follows one with them."""
        if self._chance.random() < 0.3:
            return ""
        return f" where {self._condition(relation, prefix)}"

    def _condition(self, relation: _Relation, prefix: str = "") -> str:
        return self._conditions.of(relation.columns, prefix)

    def _source(self, relation: _Relation, name: str = "r") -> str:
        """The relation, or a query in its place. Without a name Spark takes `where` for one, where `offset` follows."""
        if self._chance.random() < 0.25:
            return f"(select * from {relation.name} as s{self._where(relation)}) as {name}"
        return f"{relation.name} as {name}"

    def _expressions(self, relation: _Relation, prefix: str = "") -> list[str]:
        known = [text for column in relation.columns for text in _EXPRESSIONS[column]]
        chosen = self._chance.sample(known, self._chance.randint(1, min(4, len(known))))
        return [f"{text.replace('@', prefix)} as c{number}" for number, text in enumerate(chosen)]

    # ---- queries of one relation

    def _projection(self) -> Step:
        relation = self._pick()
        what = "*" if self._chance.random() < 0.2 else ", ".join(self._expressions(relation))
        distinct = "distinct " if self._chance.random() < 0.2 else ""
        return _sql(f"select {distinct}{what} from {self._source(relation)}{self._where(relation)}")

    def _aggregate(self) -> Step:
        relation = self._pick()
        return _sql(
            f"select {self._aggregates(relation)} from {self._source(relation)}{self._where(relation)}"
        )

    def _aggregates(self, relation: _Relation, prefix: str = "") -> str:
        known = [text for column in relation.columns for text in _AGGREGATES.get(column, ())]
        chosen = self._chance.sample(known, min(3, len(known)))
        if self._chance.random() < 0.4:
            chosen.append(f"count(*) filter (where {self._condition(relation, prefix)})")
        return ", ".join(["count(*)", *(text.replace("@", prefix) for text in chosen)])

    def _groups(self) -> Step:
        relation = self._pick()
        by = self._chance.choice([each for each in _GROUPS if set(each) <= set(relation.columns)])
        kind = self._chance.choice(("group by {}", "group by rollup({})", "group by cube({})"))
        having = self._chance.choice(("", "", " having count(*) > 20", " having min(offset) < 10"))
        return _sql(
            f"select {', '.join(by)}, {self._aggregates(relation)} from {self._source(relation)}"
            f"{self._where(relation)} {kind.format(', '.join(by))}{having}"
        )

    def _window(self) -> Step:
        relation = self._pick()
        over = "over (partition by partition order by offset desc)"
        return _sql(
            f"select * from (select partition, offset, rank() {over} as place, lag(offset) {over} as before "
            f"from {self._source(relation)}{self._where(relation)}) where place <= {self._chance.randint(1, 9)}"
        )

    def _limited(self) -> Step:
        relation = self._pick()
        down = self._chance.choice(("", " desc"))
        skipped = self._chance.choice(("", "", " offset 5"))
        inner = (
            f"select * from {self._source(relation)}{self._where(relation)} "
            f"order by topic, offset{down}, partition limit {self._chance.randint(0, 40)}{skipped}"
        )
        if self._chance.random() < 0.5:
            return _sql(inner)
        return _sql(
            f"select {', '.join(self._expressions(relation))} from ({inner}) as r{self._where(relation)}"
        )

    # ---- queries of several

    def _join(self) -> Step:
        left, right = self._pick(2), self._pick(2)
        if self._chance.random() < 0.5:
            right = left
        kind = self._chance.choice(
            ("join", "join", "left join", "right join", "full join", "left semi join", "left anti join")
        )
        on = [
            "a.partition = b.partition and a.offset = b.offset",
            f"a.offset = b.offset + {self._chance.randint(0, 3)} and a.partition <> b.partition",
            "a.topic = b.topic and a.offset = b.offset",
        ]
        if "key" in left.columns and "key" in right.columns:
            on.append("a.key = b.key and a.offset < b.offset and b.offset < 30")
        if "timestamp" in left.columns and "timestamp" in right.columns:
            on.append("a.timestamp = b.timestamp and a.partition = b.partition")
        condition = self._chance.choice(on)
        if self._chance.random() < 0.4:
            condition += f" and {self._condition(left, 'a.')}"
        is_half = "semi" in kind or "anti" in kind
        chosen = self._expressions(left, "a.")
        if not is_half:
            chosen += [text.replace(" as c", " as d") for text in self._expressions(right, "b.")]
        what = ", ".join(chosen) if self._chance.random() < 0.7 else self._aggregates(left, "a.")
        hint = self._chance.choice(
            ("", "", "/*+ merge(b) */ ", "/*+ broadcast(b) */ ", "/*+ shuffle_hash(b) */ ")
        )
        where = self._chance.choice((self._where(left, "a."), "" if is_half else self._where(right, "b.")))
        return _sql(
            f"select {hint}{what} from {self._source(left, 'a')} {kind} {self._source(right, 'b')} "
            f"on {condition}{where}"
        )

    def _set_operation(self) -> Step:
        first = self._pick(2)
        relations = [first, self._pick(2, needs=first.columns), first][: self._chance.randint(2, 3)]
        shared = _Relation("", first.columns)
        chosen = self._expressions(shared)
        texts = [
            f"(select {', '.join(chosen)} from {self._source(each)}{self._where(each)})" for each in relations
        ]
        text = texts[0]
        for each in texts[1:]:
            text = f"({text} {self._chance.choice(_SETS)} {each})"
        return _sql(
            text if self._chance.random() < 0.6 else f"select count(*), count(distinct c0) from {text}"
        )

    def _in_subquery(self) -> Step:
        outer, inner = self._pick(2), self._pick(2)
        shared = [
            each for each in ("key", "timestamp", *_PLACE) if {each} <= {*outer.columns} & {*inner.columns}
        ]
        column = self._chance.choice(shared)
        word = self._chance.choice(("in", "in", "not in"))
        left, right = column, column
        if self._chance.random() < 0.3:
            left, right = "(partition, offset)", "partition, offset"
        return _sql(
            f"select {', '.join(self._expressions(outer))} from {outer.name} as a where "
            f"{left} {word} (select {right} from {self._source(inner)}{self._where(inner)})"
            f" {self._chance.choice(('and', 'and', 'or'))} {self._condition(outer)}"
        )

    def _exists(self) -> Step:
        outer, inner = self._pick(2), self._pick(2)
        word = self._chance.choice(("exists", "not exists"))
        relates = self._chance.choice(("=", "=", "<"))
        return _sql(
            f"select {', '.join(self._expressions(outer, 'a.'))} from {self._source(outer, 'a')} where {word} "
            f"(select 1 from {self._source(inner, 'b')} where a.partition = b.partition "
            f"and a.offset {relates} b.offset and {self._condition(inner, 'b.')}) and {self._condition(outer, 'a.')}"
        )

    def _scalar(self) -> Step:
        outer, inner = self._pick(2), self._pick(2)
        asked = self._chance.choice(
            ("max(b.offset)", "count(*)", "min(b.offset)", "cast(avg(b.offset) as int)")
        )
        related = self._chance.choice((" where b.partition = a.partition", self._where(inner, "b.")))
        scalar = f"(select {asked} from {self._source(inner, 'b')}{related})"
        if self._chance.random() < 0.5:
            return _sql(
                f"select {', '.join(self._expressions(outer, 'a.'))}, {scalar} as s "
                f"from {outer.name} as a{self._where(outer, 'a.')}"
            )
        return _sql(
            f"select {', '.join(self._expressions(outer, 'a.'))} from {outer.name} as a "
            f"where a.offset {self._chance.choice(_COMPARED)} {scalar} or {self._condition(outer, 'a.')}"
        )

    def _with(self) -> Step:
        """One query named and used twice; without a filter the second time, now and then."""
        relation = self._pick(2)
        named = f"select * from {self._source(relation)}{self._where(relation)}"
        first, second = self._where(relation), self._where(relation)
        kind = self._chance.randrange(3)
        if kind == 0:
            both = f"select * from w as r{first} union all select * from w as r{second}"
            return _sql(f"with w as ({named}) select count(*), max(offset) from ({both})")
        if kind == 1:
            return _sql(
                f"with w as ({named}) select (select count(*) from w as r{first}) as x, "
                f"(select count(*) from w as r{second}) as y, (select max(offset) from {relation.name}) as z"
            )
        return _sql(
            f"with w as ({named}), u as (select * from w as r{first}) select u.offset, u.partition, w.topic "
            "from u join w on u.partition = w.partition and u.offset = w.offset"
        )

    # ---- what is kept for queries to come

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def _fewer(self, relation: _Relation) -> tuple[str, ...]:
        """Now and then not all columns; always the record's place."""
        if self._chance.random() < 0.6:
            return relation.columns
        return tuple(each for each in relation.columns if each in _PLACE or self._chance.random() < 0.6)

    def _new_view(self) -> Step:
        relation = self._pick(2)
        columns = self._fewer(relation)
        name, scans = self._name("view"), relation.scans
        text = f"select {', '.join(columns)} from {self._source(relation)}{self._where(relation)}"
        match self._chance.randrange(4):
            case 0:
                another = f"select {', '.join(columns)} from {TABLE} as r{self._where(self._table)}"
                text += f" {self._chance.choice(_SETS)} {another}"
                scans += 1
            case 1:
                text += f" order by topic, partition, offset limit {self._chance.randint(1, 200)}"
            case 2 if " where " not in text:
                text += f" where offset in (select offset from {TABLE} as r{self._where(self._table)})"
                scans += 1
        self._kept.append(_Relation(name, columns, scans))
        return _view(name, text)

    def _new_frame(self) -> Step:
        relation = self._pick(2)
        columns, scans = relation.columns, relation.scans
        changes: list[_Change] = []
        for _ in range(self._chance.randint(1, 2)):
            now = _Relation(relation.name, columns, scans)
            kind = self._chance.choice(
                ("where", "where", "select", "half", "other", "distinct", "limit", "exchange")
            )
            if kind == "select":
                columns = self._fewer(now)
                changes.append(_selected(columns))
            elif kind == "half" and 2 * scans <= _SCANS:
                changes.append(_with_part_of_itself(self._chance, self._condition(now)))
                scans *= 2
            elif kind == "other" and scans < _SCANS:
                other = self._pick(_SCANS - scans, needs=columns)
                changes.append(_with_another(self._chance, other.name, columns, self._condition(other)))
                scans += other.scans
            elif kind == "distinct":
                changes.append(self._chance.choice(_DISTINCT))
            elif kind == "limit":
                changes.append(_first_of(self._chance.randint(1, 250)))
            elif kind == "exchange":
                changes.append(self._chance.choice(_EXCHANGES))
            else:
                changes.append(_filtered(self._condition(now)))
        name = self._name("frame")
        self._kept.append(_Relation(name, columns, scans))
        return _frame(name, relation.name, changes)

    def _old_frame(self) -> Step:
        """What was asked before; the table itself as often as all else."""
        name = self._pick().name
        if self._cached and self._chance.random() < 0.2:
            return _uncached(self._cached.pop(0))
        if name != TABLE and name not in self._cached and self._chance.random() < 0.25:
            self._cached.append(name)
            return _cached(name)
        return self._chance.choice((_again, _counted))(name)


# ------------------------------------------------------------ conditions


class _Conditions:
    """Of the columns of a record, with literals of their types and of others."""

    def __init__(self, chance: random.Random, topic: str) -> None:
        self._chance = chance
        self._topics = (topic, topic[:4], "", "zzz", topic.upper())

    def of(self, columns: tuple[str, ...], prefix: str) -> str:
        """Half of them are such that a source could take them whole."""
        if self._chance.random() < 0.5:
            return " and ".join(self._plain(columns, prefix) for _ in range(self._chance.randint(1, 2)))
        return self._any(columns, prefix, 2)

    def _plain(self, columns: tuple[str, ...], prefix: str) -> str:
        column = self._chance.choice(
            [each for each in ("offset", "partition", "timestamp") if each in columns]
        )
        name, word = f"{prefix}{column}", self._chance.choice(_COMPARED)
        if column == "timestamp":
            later = self._chance.choice(STEPS_MS) * self._chance.randint(0, 40)
            return f"{name} {word} timestamp_millis({START_MS + later})"
        most = _LAST_OFFSET if column == "offset" else PARTITIONS - 1
        if self._chance.random() < 0.2:
            return f"{name} in ({', '.join(str(self._chance.randint(0, most)) for _ in range(3))})"
        return f"{name} {word} {self._chance.randint(0, most)}"

    def _any(self, columns: tuple[str, ...], prefix: str, depth: int) -> str:
        if depth and self._chance.random() < 0.45:
            left, right = (self._any(columns, prefix, depth - 1) for _ in range(2))
            return self._chance.choice(
                (
                    f"({left} and {right})",
                    f"({left} or {right})",
                    f"not ({left})",
                    f"({left} and not {right})",
                )
            )
        # Those of which a condition takes some of the records come most often.
        often = [each for each in columns if each in ("partition", "offset", "timestamp")]
        column = self._chance.choice([*often, *often, *columns])
        name = f"{prefix}{column}"
        match column:
            case "offset" | "partition" | "timestampType":
                return self._number(name, {"offset": _LAST_OFFSET, "partition": PARTITIONS}.get(column, 2))
            case "topic":
                return self._topic(name)
            case "timestamp":
                return self._timestamp(name)
            case "headers":
                return self._chance.choice(_HEADERS).replace("@", name)
            case _:
                return self._bytes(name)

    def _compared(self, name: str, literal: Callable[[], str]) -> str:
        one, two = literal(), literal()
        return self._chance.choice(
            (
                *(f"{name} {word} {one}" for word in _COMPARED),
                f"{one} {self._chance.choice(_COMPARED)} {name}",
                f"{name} between {one} and {two}",
                f"{name} not between {one} and {two}",
                f"{name} in ({one}, {two}, {literal()})",
                f"{name} not in ({one}, {two})",
                f"{name} <=> {one}",
                f"({name} = {one} or {name} = {two})",
                f"({name} >= {one} and {name} < {two})",
                f"{name} is not null",
                f"{name} is null",
                f"{name} in ({one}, null)",
                f"{name} = null",
            )[: None if self._chance.random() < 0.1 else -3]
        )

    def _number(self, name: str, most: int) -> str:
        def literal() -> str:
            number = self._chance.randint(-1, most)
            return self._chance.choice(
                (
                    *[str(number)] * 8,
                    f"{number}L",
                    f"{number}S",
                    f"'{number}'",
                    f"{number}.0",
                    f"{number}.5",
                    f"{number}D",
                    f"cast('{number}' as bigint)",
                    f"{number} + 1",
                    "10000000000",
                )
            )

        odd = (
            f"cast({name} as int) % 3 = {self._chance.randrange(3)}",
            f"cast({name} as string) like '1%'",
            f"cast({name} as string) in ('1', '02', 'x')",
            f"cast({name} as double) > {self._chance.randint(0, most)}.25",
            f"{name} + 1 <= {self._chance.randint(0, most)}",
        )
        return self._chance.choice(odd) if self._chance.random() < 0.2 else self._compared(name, literal)

    def _topic(self, name: str) -> str:
        def literal() -> str:
            return f"'{self._chance.choice(self._topics)}'"

        odd = (
            f"{name} like '{self._topics[1]}%'",
            f"{name} like '%x%'",
            f"upper({name}) = {literal()}",
            f"startswith({name}, {literal()})",
            f"contains({name}, {literal()})",
            f"length({name}) > 3",
        )
        return self._chance.choice(odd) if self._chance.random() < 0.4 else self._compared(name, literal)

    def _timestamp(self, name: str) -> str:
        def literal() -> str:
            later = self._chance.choice((0, 1, 123, 500, 3_600_000, 86_400_000)) * self._chance.randint(
                -1, 40
            )
            at = START_MS + later
            when = datetime.datetime.fromtimestamp(at / 1000, datetime.UTC)
            day, second = f"{when:%Y-%m-%d}", f"{when:%Y-%m-%d %H:%M:%S}"
            return self._chance.choice(
                (
                    f"timestamp '{second}.{at % 1000:03}'",
                    f"timestamp '{second}+02:00'",
                    f"timestamp_millis({at})",
                    f"'{day}'",
                    f"'{second}.{at % 1000:03}Z'",
                    f"'{second}'",
                    f"date '{day}'",
                    f"timestamp_ntz '{second}'",
                    f"cast('{second} Europe/Berlin' as timestamp)",
                )
            )

        odd = (
            f"cast({name} as date) = date '2023-11-{self._chance.randint(14, 30)}'",
            f"hour({name}) < {self._chance.randint(0, 24)}",
            f"cast({name} as string) > '2023-11-2'",
            f"unix_millis({name}) >= {START_MS + self._chance.choice(STEPS_MS) * 20}",
            f"{name} + interval 1 day > timestamp_millis({START_MS + 86_400_000 * 10})",
        )
        return self._chance.choice(odd) if self._chance.random() < 0.3 else self._compared(name, literal)

    def _bytes(self, name: str) -> str:
        def literal() -> str:
            text = self._chance.choice(
                (f"k{self._chance.randrange(8)}", f"{self._chance.randrange(RECORDS)}", "")
            )
            return self._chance.choice((f"X'{text.encode().hex()}'", f"cast('{text}' as binary)"))

        odd = (
            f"cast({name} as string) = 'k{self._chance.randrange(8)}'",
            f"cast({name} as string) like '%{self._chance.randrange(10)}'",
            f"try_cast(cast({name} as string) as int) > {self._chance.randrange(RECORDS)}",
            f"length({name}) = 2",
            f"coalesce({name}, X'00') = X'00'",
        )
        return self._chance.choice(odd) if self._chance.random() < 0.4 else self._compared(name, literal)


# ------------------------------------------------------------ changes of frames


def _filtered(condition: str) -> _Change:
    return f".where({condition!r})", lambda frame, _: frame.where(condition)


def _selected(columns: tuple[str, ...]) -> _Change:
    return f".select{columns}", lambda frame, _: frame.select(*columns)


def _first_of(count: int) -> _Change:
    return f".orderBy(*{_PLACE}).limit({count})", lambda frame, _: frame.orderBy(*_PLACE).limit(count)


def _with_part_of_itself(chance: random.Random, condition: str) -> _Change:
    word = chance.choice(("union", "exceptAll", "intersectAll", "subtract"))
    if chance.random() < 0.5:
        return (
            f".transform(lambda f: f.{word}(f.where({condition!r})))",
            lambda frame, _: getattr(frame, word)(frame.where(condition)),
        )
    return (
        f".transform(lambda f: f.where({condition!r}).{word}(f))",
        lambda frame, _: getattr(frame.where(condition), word)(frame),
    )


def _with_another(chance: random.Random, other: str, columns: tuple[str, ...], condition: str) -> _Change:
    kind = chance.choice(("union", "unionByName", "exceptAll", "intersect", "left_semi", "left_anti"))
    if kind.startswith("left"):
        return (
            f".join({other}.where({condition!r}), {list(_PLACE)}, {kind!r}).select{columns}",
            lambda frame, side: frame.join(side.frames[other].where(condition), list(_PLACE), kind).select(
                *columns
            ),
        )
    return (
        f".{kind}({other}.where({condition!r}).select{columns})",
        lambda frame, side: getattr(frame, kind)(side.frames[other].where(condition).select(*columns)),
    )


_DISTINCT: Final[tuple[_Change, ...]] = (
    (".distinct()", lambda frame, _: frame.distinct()),
    (f".dropDuplicates({list(_PLACE)})", lambda frame, _: frame.dropDuplicates(list(_PLACE))),
)

_EXCHANGES: Final[tuple[_Change, ...]] = (
    (".repartition(2)", lambda frame, _: frame.repartition(2)),
    (".repartition(2, 'offset')", lambda frame, _: frame.repartition(2, "offset")),
    (".coalesce(1)", lambda frame, _: frame.coalesce(1)),
    (".sort('offset')", lambda frame, _: frame.sort("offset")),
    (".alias('x')", lambda frame, _: frame.alias("x")),
)

# ------------------------------------------------------------ words

_COMPARED: Final = ("=", "=", "<", "<=", ">", ">=", "<>")
_SETS: Final = ("union all", "union all", "union", "except", "except all", "intersect", "intersect all")
_GROUPS: Final = (
    ("partition",),
    ("topic", "partition"),
    ("key",),
    ("timestampType",),
    ("key", "partition"),
)

_EXPRESSIONS: Final = {
    "topic": ("@topic", "upper(@topic)"),
    "partition": ("@partition", "@partition + 1", "cast(@partition as double)"),
    "offset": ("@offset", "@offset % 7", "cast(@offset as string)", "@offset > 50"),
    "key": ("@key", "cast(@key as string)", "coalesce(cast(@key as string), '-')"),
    "value": ("@value", "length(@value)", "try_cast(cast(@value as string) as int)"),
    "timestamp": ("@timestamp", "cast(@timestamp as date)", "hour(@timestamp)"),
    "timestampType": ("@timestampType",),
    "headers": ("@headers", "size(@headers)", "transform(@headers, h -> h.key)"),
}
"""@: where the relation's name stands, if it needs one."""

_AGGREGATES: Final = {
    "topic": ("count(distinct @topic)", "max(@topic)"),
    "partition": ("sum(@partition)", "count(distinct @partition)"),
    "offset": (
        "min(@offset)",
        "max(@offset)",
        "sum(@offset)",
        "avg(@offset)",
        "sort_array(collect_set(@offset))",
    ),
    "key": ("count(@key)", "count(distinct @key)", "max(@key)"),
    "value": ("count(@value)", "sum(length(@value))"),
    "timestamp": ("min(@timestamp)", "max(@timestamp)", "count(distinct @timestamp)"),
}

_HEADERS: Final = (
    "@ is null",
    "@ is not null",
    "size(@) = 2",
    "get(@, 0).key = 'a'",
    "exists(@, h -> h.key = 'b' and h.value is null)",
)
