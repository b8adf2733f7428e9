"""`session` makes a Spark session with the settings that Kadence's source needs to work and to be fast.

* Spark starts its workers with the ``python3`` of PATH, in a virtual environment the wrong one (`interpreter`).
* Java may have to be found, or to be brought along (`kadence.java`).
* Workers talk over TCP by default, where each task waits 34 ms for an acknowledgement; Unix sockets have no such wait.
* A new worker spends half a second with imports; those of `kadence.spark.daemon` have them behind them.
* Tasks have to be told the session's time zone, in which the source reads times of JSON that name none.
* Spark's Python processes compile PySpark out of a zip, one to two seconds each; here they find it installed (`home`).
* Each of those processes imports the same; with a local master they are forked from one that has (`spawner`).
* Arrow checks each number that Java reads for null, after Spark has; with a local master it is told not to.
* A stream whose application dies while Spark writes its first offsets has to start again (Spark 4.2 and 4.3 refuse).

If something is missing, an error says so in one sentence before Spark starts. Spark's own error would be stack
traces of two languages.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import IllegalStateError, MissingDependencyError
from kadence.java import find_java
from kadence.logs import logger
from kadence.spark.home import home_without_zip
from kadence.spark.interpreter import NAMED_BY, choose, is_submitted, what_it_lacks
from kadence.spark.parallelism import known_parallelism, parallelism_of, told
from kadence.spark.spawner import PROGRAM, is_launcher, launcher
from kadence.spark.starting import as_text, start_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "session", "started"]

_log = logger("kadence.spark")

_VERIFY_EMPTY: Final = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
"""Whether Spark refuses a checkpoint without offsets in which there is any file, such as one half written."""

_LOCAL_FILES: Final = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""What writes checkpoints on a local disk. Hadoop's default puts a checksum beside each file, renames the two one after
the other, and runs ten programs (`chmod`, `readlink`) for one file of Spark; this one five."""

SETTINGS: Final[Mapping[str, str]] = {_VERIFY_EMPTY: "false"} | (
    {
        _LOCAL_FILES: "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "kadence.spark.daemon",
    }
    if os.name == "posix"
    else {}
)
"""What `session` sets unless told otherwise; a Spark Connect server wants the same."""

_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Options of Spark's Java process. Those of Spark's settings come behind them, and Java takes the last one."""

_ONE_NULL_CHECK: Final = "-Darrow.enable_null_check_for_get=false"
"""Spark never asks for a value without having asked whether it is null."""

_ZONE: Final = "spark.sql.session.timeZone"


def session(
    app_name: str = "kadence", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """The running session, or a new one that can read ``format("kadence")``.

    With ``SPARK_REMOTE`` set it is a session of that Spark Connect server, which must have Kadence installed.

    Args:
        app_name: the application's name in Spark's pages.
        master: e.g. ``local[4]``. None: the default of spark-submit or Spark.
        conf: further Spark settings; they override those made here. If a session is running already, settings that
            Spark takes only when it starts, including ``master``, have no effect, and the log names them.

    Raises:
        MissingDependencyError: PySpark or Java is missing, or the workers' Python lacks a package that they need.
        IllegalStateError: a session is running already, and its workers' Python cannot load the source.
    """
    return started(app_name, master, conf)


def started(
    app_name: str,
    master: str | None,
    conf: Mapping[str, Any] | None,
    start: Callable[[Mapping[str, Any]], None] = start_java,
) -> SparkSession:
    """See `session`.

    Args:
        start: called with all settings before a new session; it starts the Java process.
    """
    try:
        from pyspark.sql import SparkSession, is_remote
    except ImportError as problem:
        raise MissingDependencyError(f"a Spark session needs PySpark ({problem}): {_INSTALL}") from None
    builder = SparkSession.builder.appName(app_name)
    if is_remote() or "SPARK_REMOTE" in os.environ:
        return _with_zone(_with(builder, conf).getOrCreate())
    from pyspark import SparkContext

    if (running := SparkContext._active_spark_context) is not None:
        _check(running)
        spark = _with_zone(_able(_with(builder, conf).getOrCreate()))
        _tell_of_late_settings(spark, ({} if master is None else {"spark.master": master}) | dict(conf or {}))
        return spark
    if master is not None:
        builder = builder.master(master)
    place = master or str((conf or {}).get("spark.master", "" if is_submitted() else "local"))
    settings = {**SETTINGS, **(conf or {})}
    named = {"spark.app.name": app_name} | ({} if master is None else {"spark.master": master})
    with _environment(_surroundings(place) | told(place, conf or {})):
        start({**named, **settings})
        with _handlers_kept():
            spark = _with_zone(_able(_with(builder, settings).getOrCreate()))
    _on_ctrl_c(spark.sparkContext)
    return spark


_INSTALL: Final = "pip install 'kadence[spark]'"


def _with(builder: SparkSession.Builder, settings: Mapping[str, Any] | None) -> SparkSession.Builder:
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder


def _with_zone(spark: SparkSession) -> SparkSession:
    """Say the session's time zone: its tasks are told of settings, and not of what Spark takes where there are none."""
    spark.conf.set(_ZONE, str(spark.conf.get(_ZONE)))
    return spark


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """For Spark's Java process, which keeps what it began with; other programs that this one starts get none of it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _surroundings(master: str) -> dict[str, str]:
    """The environment of a Spark that works.

    Workers get this interpreter unless another is chosen; what it lacks is said here, where it can be read. On a
    cluster a chosen one may be a path that exists on the executors alone.
    """
    chosen, local = choose(), master.startswith("local")
    lacks = what_it_lacks(chosen) if local or chosen == sys.executable else None
    if lacks is not None:
        raise MissingDependencyError(
            f"Spark's workers run {chosen}, which cannot load the source: {lacks}. Install 'kadence[spark]' "
            f"there, or set {NAMED_BY} to a Python that has it"
        )
    if is_submitted():  # its Java process runs already, with the master that it was told
        return {}
    variables = {
        "JAVA_HOME": str(find_java().home),
        # Spark plans a source, and runs its tasks on executors, with this variable's Python before the other's. It may
        # say jupyter; and what was chosen for executors may not be here.
        PROGRAM: chosen if not local and what_it_lacks(chosen) is None else sys.executable,
    }
    if local:  # elsewhere executors read batches, and their options are the cluster's
        variables[_JAVA_OPTIONS] = f"{_ONE_NULL_CHECK} {os.environ.get(_JAVA_OPTIONS, '')}".rstrip()
    home = home_without_zip() if local and chosen == sys.executable else None
    if home is None:
        return variables
    ready = launcher() if _is_in_one_process(master) else {}
    return {**variables, "SPARK_HOME": str(home), **ready}


def _is_in_one_process(master: str) -> bool:
    """Whether driver and executor are one, so that all of Spark's Python processes are on this machine."""
    return master == "local" or master.startswith("local[")


def _check(running: SparkContext) -> None:
    """A session that another has started: can its workers read?"""
    python: str = running.pythonExec
    local = str(running.master).startswith("local")
    lacks = what_it_lacks(python) if local else None
    if lacks is not None:
        raise IllegalStateError(
            f"the running Spark session starts its workers with {python}, which cannot load the source: {lacks}; "
            "stop() that session and call kadence.spark.session(), which names the right Python"
        )


def _tell_of_late_settings(spark: SparkSession, settings: Mapping[str, Any]) -> None:
    """Name those that came too late: Spark takes them when it starts, and drops them without a word afterwards."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # the session runs
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    in_force = dict(spark.sparkContext.getConf().getAll())
    late = [
        name
        for name, value in settings.items()
        if in_force.get(name) != as_text(value)
        # Settings that Spark does not know are others' (catalogs, Delta), who read them when they please.
        and (name == "spark.master" or name.startswith("spark.hadoop.") or known.findEntry(name) is not None)
        and not spark.conf.isModifiable(name)
    ]
    if late:
        _log.warning(
            "a Spark session runs already and takes no more of these settings, so they have no effect: %s; stop() it "
            "first to start one with them",
            ", ".join(late),
        )


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """PySpark replaces the program's handler of SIGINT, long before the session is there to be stopped by it."""
    from pyspark.core import context

    found = vars(context)
    found["signal"] = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    try:
        yield
    finally:
        found["signal"] = signal


def _on_ctrl_c(context: SparkContext) -> None:
    """Where the program has no handler of SIGINT of its own, Spark's jobs end with it."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python allows it nowhere else
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler or isinstance(handler, _Interrupt):
        signal.signal(signal.SIGINT, _Interrupt(context))


class _Interrupt:
    """Ctrl-C ends Spark's jobs and raises KeyboardInterrupt, as with PySpark's own handler.

    That one calls Java on the connection whose call it interrupts: the jobs go on, and three errors of Py4J come up.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _close_connection(self._context)
        # Another thread has another connection.
        threading.Thread(
            target=_cancel_jobs, args=(self._context,), name="cancel Spark's jobs", daemon=True
        ).start()
        raise KeyboardInterrupt


def _close_connection(context: SparkContext) -> None:
    """Close this thread's connection to Java, before Py4J finds that a call on it was interrupted.

    Py4J would have Java close the connection by the port that Java listens on. All connections have that port: what
    the program or another thread asks Java just then, such as ``query.stop()``, would end with "Answer from Java side
    is empty". Py4J leaves a closed connection alone, and opens another one for the next call.
    """
    client = context._gateway._gateway_client  # type: ignore[union-attr]
    # Without PYSPARK_PIN_THREAD threads have no connections of their own.
    if find := getattr(client, "get_thread_connection", None):
        connection = find()
        if connection is not None:
            connection.close()


def _cancel_jobs(context: SparkContext) -> None:
    # Java may be gone, and the application that it ends, too.
    with suppress(Exception):
        context.cancelAllJobs()


def _able(spark: SparkSession) -> SparkSession:
    """Register the sources where Spark will not find them, or where those who plan tasks know less than this session.

    Spark looks for sources once in the life of its Java process, with the Python and in the environment with which that
    began; spark-submit or an earlier session may have begun it. What is registered has an environment of its own.
    """
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None  # the session runs
    begun_with = jvm.java.lang.System.getenv()
    settings = dict(context.getConf().getAll())
    # Spark runs both planners and tasks of a source with this one, as long as nobody registers another.
    python = begun_with.get(PROGRAM) or begun_with.get(NAMED_BY) or "python3"
    is_ours = python == sys.executable or is_launcher(python)
    if not is_ours and what_it_lacks(python) is not None:
        python = context.pythonExec
    elif known_parallelism(begun_with) == parallelism_of(context.master, settings):
        return spark
    from kadence.spark.datasource import KadenceDataSource
    from kadence.spark.lakehouse.datasource import DeltaSource, IcebergSource

    context.environment.update(told(context.master, settings))
    chosen, context.pythonExec = context.pythonExec, python
    try:
        for source in (KadenceDataSource, DeltaSource, IcebergSource):
            spark.dataSource.register(source)
    finally:
        context.pythonExec = chosen
    return spark
