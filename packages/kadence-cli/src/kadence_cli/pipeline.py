"""``kadence pipeline``: writes topics to tables with Spark, by a file. Only actions that need Spark load it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kadence.errors import ConfigError
from kadence.printable import printable_json
from kadence_cli.common import (
    CommandError,
    UsageError,
    add_actions,
    add_command,
    print_json,
    print_rows,
    print_table,
    say,
)
from kadence_cli.reach import quiet
from kadence_cli.where import FORMS, Where, read_where, tell_presumed

if TYPE_CHECKING:
    from kadence.environment import Environment
    from kadence_spark.pipeline.files import Files
    from kadence_spark.pipeline.model import Pipeline
    from kadence_spark.pipeline.preview import Preview

__all__ = ["add", "run"]

_DESCRIPTION = """\
Run a pipeline that a file describes: Spark reads topics, decodes the records,
applies SQL and expectations, and writes a table or a topic. docs/pipelines.md
describes the keys of the file. After Ctrl-C or SIGTERM the next run continues
from the checkpoint."""

_EXAMPLES = """\
  kadence pipeline check --sql flights.toml
  kadence pipeline plan flights.toml       offsets, columns, a sample of rows
  kadence pipeline run flights.toml
  kadence pipeline status flights.toml     of a running or an ended pipeline
  kadence pipeline replay flights.toml --topic flights --partition 3 \\
      --from 1000 --to 2000                write a range of offsets again
  kadence pipeline schema > pipeline.schema.json"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence pipeline``."""
    parser = add_command(
        commands,
        "pipeline",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = add_actions(parser)

    def action(
        name: str, summary: str, function: Any, *, files: str | None = None, more: str = ""
    ) -> argparse.ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}.{more}"
        sub = add_command(actions, name, summary, description=description)
        if name != "schema":
            sub.add_argument("file", metavar="FILE", nargs=files, help="the pipeline's file (TOML)")
        sub.set_defaults(run=run, action_function=function)
        return sub

    check = action("check", "show mistakes in files without running them", _check, files="+")
    check.add_argument(
        "--sql", action="store_true", help="start Spark and check the SQL, too, if nothing else is wrong"
    )
    check.add_argument("--json", action="store_true", help="print one JSON line for each mistake")
    plan = action("plan", "show what a run would read and write now", _plan)
    plan.add_argument("--rows", type=int, default=5, metavar="N", help="rows of the sample (default: 5)")
    plan.add_argument("--json", action="store_true", help="print one JSON object")
    go = action("run", "run a pipeline", _run)
    go.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="S",
        help="how long a batch may take to end after Ctrl-C or SIGTERM, in seconds (default: 30)",
    )
    go.add_argument(
        "--adopt-topic-ids",
        metavar="TOPIC=ID[,…]",
        help="for one start: these topics are copies of those in the checkpoint, with the same offsets",
    )
    state = action(
        "status", "show the progress of a pipeline", _status, more=" FILE may be its local checkpoint, too."
    )
    state.add_argument("--json", action="store_true", help="print one JSON object")
    replay = action(
        "replay",
        "write a range of records again, replacing those in the table",
        _replay,
        more=f" The table\nmust be Parquet or ORC, without an aggregate. Stop the pipeline first.\n\n{FORMS}",
    )
    replay.add_argument("--topic", required=True, help="the topic of the records")
    replay.add_argument(
        "--partition", type=int, action="append", metavar="N", help="one partition; repeatable (default: all)"
    )
    replay.add_argument(
        "--from", dest="begin", required=True, metavar="WHERE", type=read_where, help="an offset or a time"
    )
    replay.add_argument(
        "--to",
        dest="end",
        metavar="WHERE",
        type=read_where,
        help="stop before this offset or time (default: the end of what the table has)",
    )
    action("schema", "print the JSON Schema of the files, for editors", _schema)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    status: int = arguments.action_function(arguments)
    return status


def _open(file: str) -> tuple[Pipeline, Environment]:
    """A checked file, and the environment."""
    from kadence.environment import Environment
    from kadence_spark.pipeline.checks import checked
    from kadence_spark.pipeline.reading import read

    environment = Environment(os.environ)
    return checked(read(file), environment), environment


def _check_reachable(pipeline: Pipeline, environment: Environment) -> None:
    """Check the brokers before Spark starts, which takes longer."""
    from kadence_spark.pipeline.ranges import check_reachable

    with quiet():
        check_reachable(pipeline, environment)


# ---------------------------------------------------------------- check, schema


def _check(arguments: argparse.Namespace) -> int:
    from kadence.environment import Environment
    from kadence_spark.pipeline.checks import check
    from kadence_spark.pipeline.reading import read
    from kadence_spark.pipeline.run import close_session, open_session

    count = 0
    for file in arguments.file:
        environment = Environment(os.environ)
        try:
            document = read(file)
        except ConfigError as problem:
            if arguments.json:
                print_json({"file": file, "line": None, "key": "", "mistake": str(problem)})
            else:
                print(f"{file}: {problem}")
            count += 1
            continue
        mistakes = check(document, environment)
        if arguments.sql and document.pipeline is not None and not mistakes:
            spark = open_session(document.pipeline, environment)
            try:
                mistakes = check(document, environment, spark)
            finally:
                close_session(spark)
        for mistake in mistakes:
            if arguments.json:
                print_json(
                    {
                        "file": mistake.file,
                        "line": mistake.line,
                        "key": mistake.key,
                        "mistake": mistake.text,
                    }
                )
            else:
                print(mistake)
        if not mistakes and not arguments.json:
            print(f"{file}: no mistakes{'' if arguments.sql else '; --sql checks the SQL, too'}")
        count += len(mistakes)
    return 2 if count else 0


def _schema(arguments: argparse.Namespace) -> int:
    from kadence_spark.pipeline.schema import schema_text

    sys.stdout.write(schema_text())
    return 0


# ---------------------------------------------------------------- plan


def _plan(arguments: argparse.Namespace) -> int:
    from kadence_spark.pipeline.preview import preview
    from kadence_spark.pipeline.run import close_session, open_session

    pipeline, environment = _open(arguments.file)
    _check_reachable(pipeline, environment)
    say(f"{pipeline.name}: starting Spark")
    spark = open_session(pipeline, environment)
    try:
        found = preview(pipeline, environment, spark, arguments.rows)
    finally:
        close_session(spark)
    if arguments.json:
        print_json(_document(found))
    else:
        _show_plan(pipeline, environment.hide(environment.fill(pipeline.sink.place)), found)
    return 0


def _document(found: Preview) -> dict[str, Any]:
    return {
        "origin": found.origin,
        "ranges": [
            {
                "partition": str(each.partition),
                "from": each.start,
                "to": each.end,
                "records": each.end - each.start,
                "bytes": each.size,
            }
            for each in found.ranges
        ],
        "columns": [{"column": name, "type": kind} for name, kind in found.columns],
        "sample": list(found.sample),
        "dead_letters": list(found.letters),
    }


def _show_plan(pipeline: Pipeline, place: str, found: Preview) -> None:
    from kadence_spark.pipeline.outputs import guarantee

    print(f"Records to read. The start is from {found.origin}, bytes are estimated:")
    document = _document(found)
    print_table(document["ranges"], ("partition", "from", "to", "records", "bytes"), sys.stdout)
    print(f"Into {pipeline.sink.written_as} {place}, {guarantee(pipeline.sink)}:")
    print_table(document["columns"], ("column", "type"), sys.stdout)
    for title, sample in (
        ("A sample of rows", found.sample),
        ("Dead letters among the same records", found.letters),
    ):
        if sample:
            print(title)
            for row in sample:
                print(printable_json(json.dumps(row, ensure_ascii=False, default=str)))


# ---------------------------------------------------------------- run


def _run(arguments: argparse.Namespace) -> int:
    from kadence_cli.pipeline_screen import Screen
    from kadence_spark.pipeline.run import Run, close_session, open_session
    from kadence_spark.pipeline.signals import Signals

    pipeline, environment = _open(arguments.file)
    with Signals(pipeline.name) as signals:
        _check_reachable(pipeline, environment)
        say(f"{pipeline.name}: starting Spark")
        spark = open_session(pipeline, environment, hold=False)
        try:
            with Screen(sys.stderr) as screen:
                running = Run(
                    pipeline,
                    environment,
                    spark,
                    tell=screen,
                    grace=arguments.grace,
                    adopt_topic_ids=arguments.adopt_topic_ids,
                )
                return signals.run(running)
        finally:
            close_session(spark)


# ---------------------------------------------------------------- status


def _status(arguments: argparse.Namespace) -> int:
    from kadence_cli.pipeline_status import facts
    from kadence_spark.pipeline.files import LocalFiles, is_local
    from kadence_spark.pipeline.status import status

    files: Files = LocalFiles()
    if Path(arguments.file).is_dir() or not is_local(arguments.file):
        checkpoint = arguments.file
        pipeline = None
    else:
        pipeline, environment = _open(arguments.file)
        checkpoint = environment.fill(pipeline.checkpoint)
    if is_local(checkpoint):
        found = status(files, checkpoint)
    elif pipeline is None:
        raise CommandError(
            f"{checkpoint} is not on this machine; name the pipeline's file, whose settings reach it"
        )
    else:
        from kadence_spark.pipeline.files import HadoopFiles
        from kadence_spark.pipeline.run import close_session, open_session

        spark = open_session(pipeline, environment)
        try:
            found = status(HadoopFiles(spark), checkpoint)
        finally:
            close_session(spark)
    document = found.document()
    if arguments.json or not sys.stdout.isatty():
        print_json(document)
        return 0
    offsets = document.get("committed_offsets", {})
    behind = document.get("lag_by_partition", {})
    expectations = document.get("expectations", {})
    shown = [{"fact": name, "value": value} for name, value in facts(document, time.time_ns() // 1_000_000)]
    print_table(shown, ("fact", "value"), sys.stdout)
    failed = [{"expectation": name, "rows that fail it": count} for name, count in expectations.items()]
    if failed:
        print_rows(failed, as_json=False)
    partitions = sorted({*offsets, *behind})
    print_rows(
        [{"partition": each, "committed": offsets.get(each), "lag": behind.get(each)} for each in partitions],
        as_json=False,
    )
    return 0


# ---------------------------------------------------------------- replay


def _bound(where: Where | None, option: str) -> Any:
    """An offset or a time in the words of `Wanted`."""
    if where is None:
        return None
    tell_presumed(where, option)
    if where.kind not in ("offset", "time"):
        raise UsageError(f"{option} of a replay takes an offset or a time")
    return str(where.number) if where.kind == "offset" else f"time:{where.number}"


def _replay(arguments: argparse.Namespace) -> int:
    from kadence_spark.pipeline.replay import Wanted, replay
    from kadence_spark.pipeline.run import close_session, open_session

    begin, end = _bound(arguments.begin, "--from"), _bound(arguments.end, "--to")
    pipeline, environment = _open(arguments.file)
    wanted = Wanted.read(arguments.topic, arguments.partition, begin, end)
    _check_reachable(pipeline, environment)
    say(f"{pipeline.name}: starting Spark")
    spark = open_session(pipeline, environment)
    try:
        done = replay(pipeline, environment, spark, wanted)
    finally:
        close_session(spark)
    for each in done.ranges:
        say(f"{each.partition}: offsets {each.start:,} to {each.end - 1:,} were read again")
    place = environment.hide(environment.fill(pipeline.sink.place))
    say(f"{place}: {done.after:,} rows came in place of {done.before:,}")
    return 0
