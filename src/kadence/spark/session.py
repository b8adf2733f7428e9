"""`session` makes a Spark session with the settings that Kadence's source needs to work and to be fast.

* Spark starts its workers with the ``python3`` of PATH, in a virtual environment the wrong one (`interpreter`).
* Java may have to be found, or to be brought along (`kadence.java`).
* Workers talk over TCP by default, where each task waits 34 ms for an acknowledgement; Unix sockets have no such wait,
  and need a directory that is closed to other users (`kadence.spark.sockets`).
* Tasks have to be told the session's time zone, in which the source reads times of JSON that name none, and how many of
  them run at once (`parallelism`).
* A stream whose application dies while Spark writes its first offsets has to start again (Spark 4.2 and 4.3 refuse).

If something is missing, an error says so in one sentence before Spark starts. Spark's own error would be stack
traces of two languages.

Nothing set here changes the result of a user's own code. ``tests/spark/test_session_settings.py`` lists all that a
session has beside a plain one of Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import IllegalStateError, MissingDependencyError
from kadence.java import find_java
from kadence.logs import logger
from kadence.spark.interpreter import NAMED_BY, choose, is_submitted, what_it_lacks
from kadence.spark.parallelism import known_parallelism, parallelism_of, told
from kadence.spark.sockets import socket_settings

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "session", "start_context", "started"]

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
    }
    if os.name == "posix"
    else {}
)
"""What `session` sets unless told otherwise; a Spark Connect server wants the same."""

PROGRAM: Final = "PYSPARK_DRIVER_PYTHON"
"""The variable by whose Python Spark looks sources up and plans them, and runs their tasks."""

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


def start_context(conf: SparkConf) -> None:
    """Start Java, unless one runs, and the context, as Spark's builder does it."""
    from pyspark import SparkContext

    SparkContext.getOrCreate(conf)


def started(
    app_name: str,
    master: str | None,
    conf: Mapping[str, Any] | None,
    start: Callable[[SparkConf], None] = start_context,
    *,
    hold: bool = True,
) -> SparkSession:
    """See `session`.

    Args:
        start: starts Java and the context of a new session, with all its settings.
        hold: whether the program's handlers of SIGINT and SIGTERM wait until Spark has started. False: they end the
            process at once, and with it Java.
    """
    try:
        from pyspark.sql import SparkSession, is_remote
    except ImportError as problem:
        raise MissingDependencyError(f"a Spark session needs PySpark ({problem}): {_INSTALL}") from None
    builder = SparkSession.builder.appName(app_name)
    if is_remote() or "SPARK_REMOTE" in os.environ:
        return _with_zone(_with(builder, conf).getOrCreate())
    from pyspark import SparkConf, SparkContext

    if (running := SparkContext._active_spark_context) is not None:
        _check(running)
        spark = _with_zone(_able(_with(builder, conf).getOrCreate()))
        _tell_of_late_settings(spark, ({} if master is None else {"spark.master": master}) | dict(conf or {}))
        return spark
    place = master or str((conf or {}).get("spark.master", "" if is_submitted() else "local"))
    named = {"spark.app.name": app_name} | ({} if master is None else {"spark.master": master})
    settings = {**named, **SETTINGS, **socket_settings(place, conf or {}), **(conf or {})}
    with _environment(_surroundings(place) | told(place, conf or {})):
        with _handlers_kept(hold=hold):
            start(SparkConf().setAll([(key, _as_text(value)) for key, value in settings.items()]))
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
    return {
        "JAVA_HOME": str(find_java().home),
        # Spark plans a source, and runs its tasks on executors, with this variable's Python before the other's. It may
        # say jupyter; and what was chosen for executors may not be here.
        PROGRAM: chosen if not local and what_it_lacks(chosen) is None else sys.executable,
    }


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
        if in_force.get(name) != _as_text(value)
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


def _as_text(value: Any) -> str:
    """As Spark's builder writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _handlers_kept(*, hold: bool) -> Iterator[None]:
    """While Spark starts, the program's handlers of signals wait if ``hold``; afterwards it has them again.

    PySpark puts a handler of SIGINT of its own in place of the program's when Spark has started. If a handler raises
    an exception before that, PySpark forgets the Java process, which then never ends.
    """
    if threading.current_thread() is not threading.main_thread():  # Python allows it nowhere else
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []
    for number, handler in before.items():
        if hold and callable(handler):
            signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: not from Python, which cannot put it back
                signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


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
    if python != sys.executable and what_it_lacks(python) is not None:
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
