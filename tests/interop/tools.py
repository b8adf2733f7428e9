"""Kafka's command-line tools, one after the other in one JVM: starting one takes longer than what most tools do."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from tests.patience import PATIENCE
from tests.protocol.real_requests import IS_4_3

from kadence.java import find_java
from kadence_testing.kafka import kafka_jars

__all__ = ["CONFIGS", "TOOLS", "Ended", "Tools", "tools_jvm"]

TOOLS: Final = "org.apache.kafka.tools"

CONFIGS: Final = "kafka.admin.ConfigCommand" if IS_4_3 else f"{TOOLS}.ConfigCommand"

_UTILS: Final = f"org.apache.kafka.common.utils{'' if IS_4_3 else '.internals'}"
"""Where `Exit` is: Kafka 4.4 moved it."""

_EXIT: Final = "the tool called Exit"


class Ended(NamedTuple):
    """A tool that has run: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


class Tools:
    """Runs ``main`` of Kafka's tools. What they print is caught, and their exit does not end the JVM."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = jvm = gateway.jvm
        self._out, self._err = (jvm.java.io.ByteArrayOutputStream() for _ in range(2))
        self._codes, self._hooks = (jvm.java.util.ArrayDeque() for _ in range(2))
        # Scala's tools take hold of the stream when they print first, so it stays the same one.
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(self._out, True, "UTF-8"))
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(self._err, True, "UTF-8"))
        self._take_over_exit()

    def __call__(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        """What the tool wrote to stdout; it must succeed."""
        ended = self.end_of(main_class, *arguments, stdin=stdin)
        assert ended.code == 0, f"{main_class} {ended}"
        return ended.out

    def end_of(self, main_class: str, *arguments: str, stdin: str = "") -> Ended:
        """How the tool ended; 1 if it threw an exception of its own."""
        jvm = self._jvm
        for each in (self._out, self._err):
            each.reset()
        self._codes.clear()
        jvm.java.lang.System.setIn(jvm.java.io.ByteArrayInputStream(stdin.encode()))
        code, thrown = 0, ""
        try:
            with _errors_of_py4j():
                getattr(jvm, main_class).main(self._array(jvm.java.lang.String, *arguments))
        except Py4JJavaError as error:
            code, thrown = 1, str(error.java_exception.toString())
        self._run_hooks()
        if (first := self._codes.peek()) is not None:
            code = first
        out, err = (_until_exit(each.toString("UTF-8")) for each in (self._out, self._err))
        return Ended(code, out, _until_exit(err + thrown))

    def _take_over_exit(self) -> None:
        """Kafka's `Exit` calls what it was given: here it notes the code and throws, and keeps the hooks.

        Most tools catch what is thrown, print it and exit once more, so the first code counts.
        """
        lang = self._jvm.java.lang
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType

        def named(name: str, package: str = "java.lang.") -> Any:
            return lang.Class.forName(package + name)

        def types(*found: Any) -> Any:
            return self._array(lang.Class, *found)

        nothing, number, truth = (
            named(name).getField("TYPE").get(None) for name in ("Void", "Integer", "Boolean")
        )
        text, runnable = named("String"), named("Runnable")

        def adds_to(deque: Any, element: Any) -> Any:
            add = handles.publicLookup().findVirtual(
                deque.getClass(), "add", method_type(truth, named("Object"))
            )
            return add.bindTo(deque).asType(method_type(nothing, element))

        def implemented(interface: str, handle: Any) -> Any:
            kind = named(interface, f"{_UTILS}.Exit$")
            return lang.invoke.MethodHandleProxies.asInterfaceInstance(kind, handle)

        thrown = lang.Error(_EXIT)
        throw = handles.throwException(nothing, thrown.getClass()).bindTo(thrown)
        noting = handles.foldArguments(
            handles.dropArguments(throw, 0, types(number)), adds_to(self._codes, number)
        )
        exits = getattr(self._jvm, f"{_UTILS}.Exit")
        exits.setExitProcedure(implemented("Procedure", handles.dropArguments(noting, 1, types(text))))
        keeping = handles.dropArguments(adds_to(self._hooks, runnable), 0, types(text))
        exits.setShutdownHookAdder(implemented("ShutdownHookAdder", keeping))

    def _run_hooks(self) -> None:
        """The console producer sends what is left only when its JVM ends."""
        while (hook := self._hooks.poll()) is not None:
            thread = self._jvm.java.lang.Thread(hook)
            thread.start()
            thread.join()

    def _array(self, kind: Any, *elements: Any) -> Any:
        array = self._gateway.new_array(kind, len(elements))
        for index, element in enumerate(elements):
            array[index] = element
        return array


@contextmanager
def _errors_of_py4j() -> Iterator[None]:
    """PySpark, once it has a session, has Py4J ask Spark's classes about each exception; this JVM has none of them."""
    told = java_gateway.get_return_value
    java_gateway.get_return_value = protocol.get_return_value
    try:
        yield
    finally:
        java_gateway.get_return_value = told


def _until_exit(written: str) -> str:
    """Without what a tool prints of the exception that ends it."""
    lines = written.splitlines(keepends=True)
    return "".join(itertools.takewhile(lambda line: _EXIT not in line, lines))


@contextmanager
def tools_jvm() -> Iterator[Tools]:
    """The JVM runs meanwhile, and ends with this process too."""
    (gateway_jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(gateway_jar),
        classpath=f"{kafka_jars()}/*",
        java_path=str(find_java().executable),
        javaopts=[
            "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ],
        die_on_exit=True,
        return_proc=True,
    )  # fmt: skip
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield Tools(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
