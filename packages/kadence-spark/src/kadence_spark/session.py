"""`session` makes a Spark session with the settings that Kadence's source needs to work and to be fast.

* Spark starts its workers with the ``python3`` of PATH, which is wrong in a virtual environment (`interpreter`).
* Java must be found, or comes from a package (`kadence.java`).
* Workers talk over TCP by default, where each task waits 34 ms for an acknowledgement; Unix sockets have no such wait,
  and need a directory that is closed to other users (`kadence_spark.sockets`).
* Tasks need the session's time zone, in which the source parses JSON times without a zone, and the number of tasks that
  run at once (`parallelism`).
* A stream whose application died while Spark wrote its first offsets must be able to start again (Spark 4.2 and 4.3
  refuse).

If a part is missing, the error before Spark's start is one sentence. Spark's own error would be stack traces of two
languages.

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
from kadence_spark.interpreter import NAMED_BY, choose, is_submitted, what_it_lacks
from kadence_spark.parallelism import known_parallelism, parallelism_of, told
from kadence_spark.sockets import socket_settings

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "session", "start_context", "started"]

_log = logger("kadence.spark")

_VERIFY_EMPTY: Final = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
"""Whether Spark refuses a checkpoint without offsets but with any file, such as an incomplete one."""

_LOCAL_FILES: Final = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""The class that writes checkpoints on a local disk. Hadoop's default writes a checksum beside each file, renames the
two one after the other, and runs ten programs (`chmod`, `readlink`) for one file of Spark's; this class runs five."""

SETTINGS: Final[Mapping[str, str]] = {_VERIFY_EMPTY: "false"} | (
    {
        _LOCAL_FILES: "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if os.name == "posix"
    else {}
)
"""The default settings of `session`; a Spark Connect server needs the same."""

PROGRAM: Final = "PYSPARK_DRIVER_PYTHON"
"""The variable with the Python with which Spark finds and plans sources, and runs their tasks."""

_ZONE: Final = "spark.sql.session.timeZone"


def session(
    app_name: str = "kadence", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """The running session, or a new one, in which ``format("kadence")`` works.

    With ``SPARK_REMOTE`` set it is a session of that Spark Connect server, which must have Kadence installed.

    Args:
        app_name: the application's name in Spark's web interface.
        master: e.g. ``local[4]``. None: the default of spark-submit or Spark.
        conf: further Spark settings; they override those made here. If a session is running already, settings that
            Spark reads only when it starts, including ``master``, have no effect and are logged. The same holds for
            settings of Java, such as ``spark.driver.memory``, if Java is running already, also for a stopped session.

    Raises:
        MissingDependencyError: PySpark or Java is missing, or the workers' Python lacks a package that they need.
        IllegalStateError: a session is running already, and its workers' Python cannot load Kadence.
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
        hold: whether the program's handlers of SIGINT and SIGTERM are deferred until Spark has started. False: they end
            the process at once, and with it Java.
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
        given = ({} if master is None else {"spark.master": master}) | dict(conf or {})
        _tell_of_late_settings(spark, given)
        _tell_of_javas_settings(spark, given)
        return spark
    # It runs on after a session was stopped.
    has_java = is_submitted() or SparkContext._gateway is not None
    place = master or str((conf or {}).get("spark.master", "" if is_submitted() else "local"))
    named = {"spark.app.name": app_name} | ({} if master is None else {"spark.master": master})
    settings = {**named, **SETTINGS, **socket_settings(place, conf or {}), **(conf or {})}
    with _environment(_surroundings(place) | told(place, conf or {})):
        with _handlers_kept(hold=hold):
            start(SparkConf().setAll([(key, _as_text(value)) for key, value in settings.items()]))
        spark = _with_zone(_able(_with(builder, settings).getOrCreate()))
    if has_java:
        _tell_of_javas_settings(spark, conf or {})
    _on_ctrl_c(spark.sparkContext)
    return spark


_INSTALL: Final = "pip install 'kadence[spark]'"


def _with(builder: SparkSession.Builder, settings: Mapping[str, Any] | None) -> SparkSession.Builder:
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder


def _with_zone(spark: SparkSession) -> SparkSession:
    """Set the session's time zone explicitly: tasks get explicit settings, but not Spark's default zone."""
    spark.conf.set(_ZONE, str(spark.conf.get(_ZONE)))
    return spark


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """A context that sets variables for Spark's Java process, which keeps them; other child processes lack them."""
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
    """The environment variables for Spark.

    Workers get this interpreter unless another is chosen; missing packages are reported here, where the error is
    readable. On a cluster a chosen interpreter may be a path that exists on the executors alone.
    """
    chosen, local = choose(), master.startswith("local")
    lacks = what_it_lacks(chosen) if local or chosen == sys.executable else None
    if lacks is not None:
        raise MissingDependencyError(
            f"Spark's workers run {chosen}, which cannot load the source: {lacks}. Install 'kadence[spark]' "
            f"there, or set {NAMED_BY} to a Python that has it"
        )
    if is_submitted():  # its Java process runs already, with its master
        return {}
    return {
        "JAVA_HOME": str(find_java().home),
        # Spark plans a source, and runs its tasks on executors, with this variable's Python before the other's. It may
        # be jupyter; and the interpreter of executors may not exist here.
        PROGRAM: chosen if not local and what_it_lacks(chosen) is None else sys.executable,
    }


def _check(running: SparkContext) -> None:
    """Check that the workers of an existing session can load the source."""
    python: str = running.pythonExec
    local = str(running.master).startswith("local")
    lacks = what_it_lacks(python) if local else None
    if lacks is not None:
        raise IllegalStateError(
            f"the running Spark session starts its workers with {python}, which cannot load the source: {lacks}; "
            "stop() that session and call kadence_spark.session(), which names the right Python"
        )


def _tell_of_late_settings(spark: SparkSession, settings: Mapping[str, Any]) -> None:
    """Log settings that came too late: Spark reads them when it starts, and later ignores them silently."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # the session runs
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    in_force = dict(spark.sparkContext.getConf().getAll())
    late = [
        name
        for name, value in settings.items()
        if name not in _OF_JAVA
        and in_force.get(name) != _as_text(value)
        # Settings that Spark does not know belong to catalogs or Delta, which read them at any time.
        and (name == "spark.master" or name.startswith("spark.hadoop.") or known.findEntry(name) is not None)
        and not spark.conf.isModifiable(name)
    ]
    if late:
        _log.warning(
            "a Spark session runs already, so these settings have no effect: %s; stop() it "
            "first to start one with them",
            ", ".join(late),
        )


_OF_JAVA: Final = frozenset(
    {
        "spark.driver.memory",
        "spark.driver.extraJavaOptions",
        "spark.driver.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.jars.packages",
        "spark.jars.excludes",
        "spark.jars.repositories",
        "spark.jars.ivy",
        "spark.jars.ivySettings",
    }
)
"""Settings with which Java is started. It runs until the program ends, and later sessions use it, too."""


def _tell_of_javas_settings(spark: SparkSession, settings: Mapping[str, Any]) -> None:
    """Log settings that Java was not started with. Spark would even show them as those of the session."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # the session runs
    late = [
        name
        for name, value in settings.items()
        if name in _OF_JAVA and jvm.java.lang.System.getProperty(name) != _as_text(value)
    ]
    if late:
        _log.warning(
            "Java runs already, so these settings have no effect: %s; %s",
            ", ".join(late),
            "give them to spark-submit"
            if is_submitted()
            else "start the program anew with them in its first session",
        )


def _as_text(value: Any) -> str:
    """The value in the form of Spark's builder."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _handlers_kept(*, hold: bool) -> Iterator[None]:
    """Defer the program's signal handlers while Spark starts, if ``hold``, and restore them afterwards.

    PySpark replaces the program's handler of SIGINT by its own when Spark has started. If a handler raises an exception
    before that, PySpark loses track of the Java process, which then never ends.
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
    """If the program has no handler of SIGINT of its own, SIGINT ends Spark's jobs."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python allows it nowhere else
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler or isinstance(handler, _Interrupt):
        signal.signal(signal.SIGINT, _Interrupt(context))


class _Interrupt:
    """Ctrl-C ends Spark's jobs and raises KeyboardInterrupt, as with PySpark's own handler.

    PySpark's handler calls Java on the connection whose call it interrupts: the jobs go on, and Py4J logs three errors.
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

    Py4J would have Java close the connection by the port that Java listens on. All connections have that port: calls of
    the program or another thread at that time, such as ``query.stop()``, would fail with "Answer from Java side is
    empty". Py4J ignores a closed connection, and opens another one for the next call.
    """
    client = context._gateway._gateway_client  # type: ignore[union-attr]
    # Without PYSPARK_PIN_THREAD threads have no connections of their own.
    if find := getattr(client, "get_thread_connection", None):
        connection = find()
        if connection is not None:
            connection.close()


def _cancel_jobs(context: SparkContext) -> None:
    # Java may be gone, and its application, too.
    with suppress(Exception):
        context.cancelAllJobs()


def _able(spark: SparkSession) -> SparkSession:
    """Register the sources if Spark will not find them, or if planners would lack this session's environment.

    Spark looks for sources once in the life of its Java process, with the Python and environment with which that was
    started, maybe by spark-submit or an earlier session. Registered sources have an environment of their own.
    """
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None  # the session runs
    begun_with = jvm.java.lang.System.getenv()
    settings = dict(context.getConf().getAll())
    # Spark runs planners and tasks of a source with this one, unless another one is registered.
    python = begun_with.get(PROGRAM) or begun_with.get(NAMED_BY) or "python3"
    if python != sys.executable and what_it_lacks(python) is not None:
        python = context.pythonExec
    elif known_parallelism(begun_with) == parallelism_of(context.master, settings):
        return spark
    from kadence_spark.datasource import KadenceDataSource
    from kadence_spark.lakehouse.datasource import DeltaSource, IcebergSource

    context.environment.update(told(context.master, settings))
    chosen, context.pythonExec = context.pythonExec, python
    try:
        for source in (KadenceDataSource, DeltaSource, IcebergSource):
            spark.dataSource.register(source)
    finally:
        context.pythonExec = chosen
    return spark
