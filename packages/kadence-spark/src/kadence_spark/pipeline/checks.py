"""Checks a file beyond its keys and types: the source's own rules, contradictory outputs, SQL.

Brokers are not asked. SQL is checked only with a Spark session, by its own parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kadence.environment import Environment
from kadence.errors import ConfigError
from kadence_spark.pipeline import places
from kadence_spark.pipeline.failures import reason
from kadence_spark.pipeline.model import FIRST_VIEW, Output, Pipeline
from kadence_spark.pipeline.outputs import FILE_FORMATS, LAKEHOUSE, MODES, lakehouse_options, topic_options
from kadence_spark.pipeline.positions import Path
from kadence_spark.pipeline.reading import Document, Mistake, PipelineFileError, dotted
from kadence_spark.source import options as source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check", "checked"]


def checked(document: Document, environment: Environment) -> Pipeline:
    """The pipeline of a file without mistakes.

    Raises:
        PipelineFileError: it has some.
    """
    mistakes = check(document, environment)
    if mistakes or document.pipeline is None:
        raise PipelineFileError(mistakes)
    return document.pipeline


def check(document: Document, environment: Environment, spark: SparkSession | None = None) -> list[Mistake]:
    """All mistakes of a file in its order.

    Args:
        spark: a session that checks the SQL of a file without other mistakes.
    """
    pipeline = document.draft
    if pipeline is None:
        return document.mistakes
    if any(path[:1] == ("decode",) and path != ("decode", "action") for path in document.wrong):
        # Which options decoding takes depends on its other keys.
        pipeline = replace(pipeline, decode=None)
    found = [
        *_source(document, pipeline, environment),
        *_decode(document, pipeline),
        *_names(document, pipeline),
        *_aggregate(document, pipeline),
        *_output(document, pipeline, "sink", pipeline.sink, environment),
        *_output(document, pipeline, "dead_letters", pipeline.dead_letters, environment),
        *_meetings(document, pipeline, environment),
    ]
    told = [each for each in found if not _follows(each.path, document.wrong)] + document.mistakes
    if spark is not None and not told:
        told = _sql(document, pipeline, environment, spark)
    return sorted(told)


def _follows(path: Path, wrong: Iterable[Path]) -> bool:
    """Whether a mistake may follow from others: at its key, the table around it, or a key below it."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other in wrong)


# ---------------------------------------------------------------- options


def _source(document: Document, pipeline: Pipeline, environment: Environment) -> list[Mistake]:
    options = environment.fill_all(pipeline.source_options())
    if not any(name.lower() == "kafka.bootstrap.servers" for name in options):
        text = 'servers is missing: brokers to ask first, such as servers = "localhost:9092"'
        return [document.mistake(("source",), text)]

    def parse(given: Mapping[str, str]) -> Any:
        return source_options.parse(given, streaming=True)

    return _refused(document, "source", options, parse, environment)


def _refused(
    document: Document,
    table: str,
    options: dict[str, str],
    parse: Callable[[Mapping[str, str]], Any],
    environment: Environment,
) -> list[Mistake]:
    """All options that a parser refuses. It reports one at a time, which is then removed for the next attempt."""
    found: list[Mistake] = []
    left = dict(options)
    while True:
        try:
            parse(left)
        except ConfigError as problem:
            wrong = (problem.key or "").lower()
            name = next((each for each in left if each.lower() == wrong), None)
            found.append(document.mistake(_path(document, table, name), environment.hide(str(problem))))
            if name is None or name.lower() in _NEEDED:
                return found
            del left[name]
        else:
            return found


_NEEDED = ("subscribe", "subscribepattern", "assign", "kafka.bootstrap.servers", "topic")


def _path(document: Document, table: str, option: str | None) -> Path:
    """The key of an option in the file: dotted, quoted, or below options."""
    if option is not None:
        short = {
            "kafka.bootstrap.servers": "servers",
            "subscribe": "topics",
            "value.format": "format",
            "value.schema": "schema",
        }
        for path in document.lines:
            inner = path[1:]
            name = dotted(inner[1:] if inner[:1] == ("options",) else inner)
            # Options of decoding are options of the source, too.
            is_here = path[:1] == (table,) or (table == "source" and path[:1] == ("decode",))
            if is_here and name in {option, short.get(option)}:
                return path
    return (table,)


# ---------------------------------------------------------------- steps


def _decode(document: Document, pipeline: Pipeline) -> list[Mistake]:
    step = pipeline.decode
    if step is not None and step.is_json and step.schema is None:
        text = "schema is missing: the columns of the JSON as Spark DDL, such as 'id bigint, name string'"
        return [document.mistake(("decode",), text)]
    return []


def _names(document: Document, pipeline: Pipeline) -> list[Mistake]:
    found = []
    for table, names in (
        ("transform", [each.name for each in pipeline.transform]),
        ("expect", [each.name for each in pipeline.expect]),
    ):
        for place, name in enumerate(names):
            path: Path = (table, place, "name")
            if name in names[:place]:
                found.append(
                    document.mistake(path, f"{name!r} is the name of {table}[{names.index(name)}] already")
                )
            elif table == "transform" and name.lower() in (FIRST_VIEW, "_record"):
                found.append(
                    document.mistake(path, f"{name!r} is the name of the view that the first step reads")
                )
    return found


def _aggregate(document: Document, pipeline: Pipeline) -> list[Mistake]:
    step, sink = pipeline.aggregate, pipeline.sink
    if step is None:
        return []
    found = []

    def wrong(key: str, text: str) -> None:
        path: Path = ("aggregate", key) if ("aggregate", key) in document.lines else ("aggregate",)
        found.append(document.mistake(path, text))

    if step.watermark is None and step.delay is not None:
        wrong("delay", 'is that of a watermark; name its column, such as watermark = "at"')
    elif step.watermark is not None and step.delay is None:
        wrong("delay", 'the watermark needs a delay, such as delay = "10m": how late a row may come')
    elif step.watermark is None and step.mode == "append":
        wrong(
            "mode",
            "append writes a group when no row can change it any more, which a watermark tells; name the column of the "
            'rows\' times, such as watermark = "at", and a delay',
        )
    modes = MODES.get(sink.written_as, ("append",))
    if step.mode not in modes:
        wrong(
            "mode",
            f"format {sink.written_as} takes {' and '.join(modes)}, not {step.mode}: rows of earlier batches stay "
            "there as they are",
        )
    if ("sink", "provenance") in document.lines and sink.provenance:
        found.append(
            document.mistake(("sink", "provenance"), "groups are made of many records, and have none")
        )
    return found


def _output(
    document: Document, pipeline: Pipeline, table: str, output: Output | None, environment: Environment
) -> list[Mistake]:
    if output is None:
        return []
    found = []

    def wrong(key: str, text: str) -> None:
        path: Path = (table, key) if (table, key) in document.lines else (table,)
        found.append(document.mistake(path, text))

    places = [key for key in ("path", "table", "topic") if getattr(output, key) is not None]
    form = output.written_as
    if len(places) > 1 or (not places and form in (*FILE_FORMATS, *LAKEHOUSE, "delta", "kadence")):
        given = " and ".join(places) or "none of them"
        wrong(
            places[-1] if places else "",
            f"exactly one of path, table and topic says where the rows go, not {given}",
        )
        return found
    fits = {**dict.fromkeys(FILE_FORMATS, ("path",)), "delta": ("path", "table")}
    fits |= {each: (key,) for each, key in LAKEHOUSE.items()}
    if form == "kafka":
        wrong("format", "a topic is written by format kadence; leave the format out")
    elif (form == "kadence") != (places == ["topic"]):
        wrong(
            places[0] if places else "format",
            f"format {form} and {' '.join(places) or 'no topic'} do not go together",
        )
    elif form in fits and places[0] not in fits[form]:
        wrong(places[0], f"format {form} needs {' or '.join(fits[form])}, not {places[0]}")
    if output.topic is None:
        for key in ("key", "servers"):
            if getattr(output, key) is not None:
                wrong(key, "is for a topic")
    elif output.key is not None and table == "dead_letters":
        wrong("key", "is the sink's; a dead letter record has the key of its record")
    elif output.partition_by:
        wrong("partition_by", "is for a table; a topic's partition follows from the key")
    if output.topic is not None and not found:
        found += _topic(document, pipeline, table, output, environment)
    if form in LAKEHOUSE and not found:
        found += _lakehouse(document, table, output, environment)
    return found


def _meetings(document: Document, pipeline: Pipeline, environment: Environment) -> list[Mistake]:
    """Check for outputs that the pipeline would read or write twice, or that overlap with its own files."""
    fill = environment.fill
    found = []
    sink, dead = pipeline.sink, pipeline.dead_letters
    for table, output in (("sink", sink), ("dead_letters", dead)):
        if output is None:
            continue
        if output.topic is not None and _reads_what_it_writes(pipeline, output, environment):
            topic = environment.hide(_place(output, environment))
            text = f"the pipeline reads the topic {topic!r}: it would read what it writes"
            found.append(document.mistake((table, "topic"), text))
        if output.path is not None:
            path = _place(output, environment)
            found += _beside_checkpoint(document, table, output, path, fill(pipeline.checkpoint))
    if dead is not None and (why := _in_the_way(sink, dead, pipeline, environment)):
        key = "topic" if dead.topic else "path" if dead.path else "table"
        found.append(
            document.mistake(("dead_letters", key), f"{why}; dead letter records need a place of their own")
        )
    return found


def _reads_what_it_writes(pipeline: Pipeline, output: Output, environment: Environment) -> bool:
    try:
        source = source_options.parse(environment.fill_all(pipeline.source_options()), streaming=True)
    except ConfigError:
        return False  # which is a mistake of its own
    return places.reads_topic(source, _place(output, environment)) and places.may_be_same_cluster(
        source.client, _client(output, pipeline, environment)
    )


def _place(output: Output, environment: Environment) -> str:
    """Path, table or topic, as its writer takes it."""
    place = environment.fill(output.place)
    return place.strip() if output.topic is not None or output.written_as in LAKEHOUSE else place


def _client(output: Output, pipeline: Pipeline, environment: Environment) -> dict[str, str]:
    """Where a topic is written: servers, or an option, or else those of the source."""
    options = topic_options(output, environment.fill_all(pipeline.source_options()), environment)
    return {"bootstrap.servers": options.get("kafka.bootstrap.servers", "")}


def _beside_checkpoint(
    document: Document, table: str, output: Output, path: str, checkpoint: str
) -> list[Mistake]:
    if not path.strip() or not checkpoint.strip():
        return []  # which is a mistake of its own
    if places.is_inside(path, checkpoint):
        return [
            document.mistake((table, "path"), "lies in the checkpoint; rows need a directory of their own")
        ]
    if not places.is_inside(checkpoint, path):
        return []
    below = places.directory(checkpoint).removeprefix(places.directory(path)).lstrip("/")
    if output.written_as not in FILE_FORMATS and below.startswith("_"):
        return []  # Delta and Iceberg leave hidden directories alone
    where = "the sink's directory" if table == "sink" else "the directory of the dead letters"
    return [document.mistake(("checkpoint",), f"lies in {where}; it needs a directory of its own")]


def _in_the_way(sink: Output, dead: Output, pipeline: Pipeline, environment: Environment) -> str | None:
    """Check that dead letter records cannot damage the rows of the sink."""
    if sink.path is not None and dead.path is not None:
        ours, theirs = _place(dead, environment), _place(sink, environment)
        if places.is_same(ours, theirs):
            return "is the sink's own"
        if places.is_inside(ours, theirs):
            return "lies in the sink's directory"
        if places.is_inside(theirs, ours):
            return "is a directory that the sink lies in"
    if sink.table is not None and dead.table is not None:
        names = environment.fill(dead.table), environment.fill(sink.table)
        return "is the sink's own" if places.may_be_same_table(*names) else None
    if sink.topic is None or dead.topic is None or _place(sink, environment) != _place(dead, environment):
        return None
    own, other = (_client(each, pipeline, environment) for each in (sink, dead))
    return "is the sink's own" if places.may_be_same_cluster(own, other) else None


def _topic(
    document: Document, pipeline: Pipeline, table: str, output: Output, environment: Environment
) -> list[Mistake]:
    from kadence_spark.sink.options import parse

    # A source without brokers has its own mistake.
    source = {"kafka.bootstrap.servers": "none:9092"} | environment.fill_all(pipeline.source_options())
    return _refused(document, table, topic_options(output, source, environment), parse, environment)


def _lakehouse(document: Document, table: str, output: Output, environment: Environment) -> list[Mistake]:
    from kadence_spark.lakehouse.options import parse

    for name in map(environment.fill, output.partition_by):
        if "," in name or name != name.strip():
            text = f"takes no name with a comma, or a space at either end: {environment.hide(name)!r}"
            return [document.mistake((table, "partition_by"), f"format {output.written_as} {text}")]
    kind = output.written_as.removeprefix("kadence-")
    read = partial(parse, kind=kind, streaming=False)
    return _refused(document, table, lakehouse_options(output, environment), read, environment)


# ---------------------------------------------------------------- SQL


def _sql(
    document: Document, pipeline: Pipeline, environment: Environment, spark: SparkSession
) -> list[Mistake]:
    """Errors of Spark's parser, for each statement; then those of the analysis of the whole."""
    from pyspark.errors import PySparkException

    from kadence_spark.pipeline.frames import filled, loaded
    from kadence_spark.pipeline.run import check_plan

    pipeline = filled(pipeline, environment)
    parser = spark._jsparkSession.sessionState().sqlParser()
    texts: list[tuple[Path, str, Any]] = []
    decode = pipeline.decode
    if decode is not None and decode.is_json and decode.schema is not None:
        texts.append((("decode", "schema"), decode.schema, parser.parseTableSchema))
    for place, step in enumerate(pipeline.transform):
        texts.append((("transform", place, "sql"), step.sql, parser.parsePlan))
    if pipeline.aggregate is not None:
        texts.append((("aggregate", "sql"), pipeline.aggregate.sql, parser.parsePlan))
    for place, each in enumerate(pipeline.expect):
        texts.append((("expect", place, "condition"), each.condition, parser.parseExpression))
    found = []
    for path, text, parse in texts:
        try:
            parse(text)
        except PySparkException as problem:
            said = environment.hide(reason(problem))
            found.append(document.mistake(path, said))
    if not found:
        try:
            check_plan(
                loaded(pipeline, environment.fill_all(pipeline.source_options()), spark.read).limit(0),
                pipeline,
            )
        except ConfigError as problem:
            found.append(document.mistake(_step_of(problem.key, pipeline), environment.hide(str(problem))))
        except PySparkException as problem:
            found.append(document.mistake(("source",), environment.hide(reason(problem))))
    return found


def _step_of(key: str | None, pipeline: Pipeline) -> Path:
    """The key of the step that an error names; without a name, that of the part after the transforms."""
    for place, step in enumerate(pipeline.transform):
        if key == f"transform {step.name}":
            return ("transform", place, "sql")
    if key is not None and key.partition(".")[0] in ("aggregate", "sink", "dead_letters"):
        return tuple(key.split("."))
    return ("expect",) if pipeline.expect else ()
