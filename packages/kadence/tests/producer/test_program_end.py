"""The end of a program: what its own `atexit` handlers send is written, and nothing waits for what has ended.

Each program is one of its own, whose handler is registered before Kadence is loaded: so it runs after Kadence's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest
from tests.patience import PATIENCE
from tests.producer.reading import read_all

from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker

ON_A_THREAD = """
    import atexit, logging, sys

    @atexit.register
    def bye():
        {bye}
        print("bye")

    from kadence import Producer
    p = Producer(bootstrap_servers={servers!r}, linger_ms=60_000{more})
    {before}
"""

ON_A_LOOP = """
    import asyncio, atexit, logging, sys

    @atexit.register
    def bye():
        async def last():
            {bye}
        loop.run_until_complete(last())
        print("bye")

    from kadence import AsyncProducer

    async def make():
        global p
        p = AsyncProducer(bootstrap_servers={servers!r}, linger_ms=60_000{more})
        {before}

    loop = asyncio.new_event_loop()
    loop.run_until_complete(make())
"""

TRANSACTIONAL = ", transactional_id='x'"

THREAD = {
    "send": ('p.send("t", b"last")', "", 'p.send("t", b"first")'),
    "send, close": ('p.send("t", b"last"); p.close()', "", 'p.send("t", b"first")'),
    "send, flush": ('p.send("t", b"last"); p.flush()', "", 'p.send("t", b"first")'),
    "result": ('p.send("t", b"last").result()', "", 'p.send("t", b"first")'),
    "send_and_wait": ('p.send_and_wait("t", b"last")', "", 'p.send("t", b"first")'),
    "send_arrow": (
        'p.send_arrow(table, "t").result()',
        "",
        'import pyarrow; table = pyarrow.table({"value": ["last"]}); p.send("t", b"first")',
    ),
    "transaction": (
        'p.begin_transaction(); p.send("t", b"last"); p.commit_transaction()',
        TRANSACTIONAL,
        'p.init_transactions(); p.begin_transaction(); p.send("t", b"first"); p.commit_transaction()',
    ),
    "a transaction that is open": (
        'p.send("t", b"last"); p.commit_transaction()',
        TRANSACTIONAL,
        'p.init_transactions(); p.begin_transaction(); p.send("t", b"first")',
    ),
}
LOOP = {
    "send": ('await p.send("t", b"last")', "", 'await p.send("t", b"first")'),
    "send, close": ('await p.send("t", b"last"); await p.close()', "", 'await p.send("t", b"first")'),
    "send, flush": ('await p.send("t", b"last"); await p.flush()', "", 'await p.send("t", b"first")'),
    "result": ('await (await p.send("t", b"last"))', "", 'await p.send("t", b"first")'),
    "send_and_wait": ('await p.send_and_wait("t", b"last")', "", 'await p.send("t", b"first")'),
    "transaction": (
        'await p.begin_transaction(); await p.send("t", b"last"); await p.commit_transaction()',
        TRANSACTIONAL,
        'await p.init_transactions(); await p.begin_transaction(); await p.send("t", b"first")\n'
        + 8 * " "
        + "await p.commit_transaction()",
    ),
}
CASES = [
    *(pytest.param(ON_A_THREAD, *case, id=name) for name, case in THREAD.items()),
    *(pytest.param(ON_A_LOOP, *case, id=f"asyncio: {name}") for name, case in LOOP.items()),
]


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        timeout=PATIENCE,
        check=True,
        text=True,
        capture_output=True,
    )


def values(broker: Broker, count: int) -> list[bytes | None]:
    return [message.value() for message in read_all(broker.bootstrap_servers, "t", 1, count)]


@pytest.mark.parametrize(("program", "bye", "more", "before"), CASES)
def test_what_a_handler_sends_is_written(
    broker: Broker, program: str, bye: str, more: str, before: str
) -> None:
    ended = run(program.format(bye=bye, more=more, before=before, servers=broker.bootstrap_servers))
    assert ended.stdout == "bye\n", ended.stderr
    assert values(broker, 2) == [b"first", b"last"]
    assert "lost" not in ended.stderr


def test_what_a_logging_handler_sends_at_the_end_is_written(broker: Broker) -> None:
    program = f"""
        import atexit, logging

        @atexit.register
        def bye():
            log.warning("last")

        from kadence import Producer

        class ToKafka(logging.Handler):
            def emit(self, record):
                p.send("t", record.getMessage().encode())
            def flush(self):
                p.flush()
            def close(self):
                p.send("t", b"closed").result()
                p.close()
                super().close()

        p = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
        log = logging.getLogger("app")
        log.addHandler(ToKafka())
        log.warning("first")
    """
    assert run(program).stderr == ""
    assert values(broker, 3) == [b"first", b"last", b"closed"]


CALLS = {
    "send": 'p.send("t", b"x")',
    "result": 'p.send("t", b"x").result()',
    "flush": "p.flush()",
    "send_and_wait": 'p.send_and_wait("t", b"x")',
    "partitions_for": 'p.partitions_for("u")',
}


def test_a_finalizer_that_sends_after_the_end_is_refused(broker: Broker) -> None:
    calls = "".join(
        f"""
                try:
                    {call}
                except ClosedError:
                    print("refused")
        """
        for call in CALLS.values()
    )
    program = f"""
        from kadence import Producer
        from kadence.errors import ClosedError

        class Late:
            def __del__(self):
                {calls.strip()}
                p.close()
                print(first.result(), repr(p).split()[2])

        p = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
        first = p.send("t", b"first")
        late = Late()
    """
    ended = run(program)
    assert ended.stdout.splitlines()[:-1] == ["refused"] * len(CALLS), ended.stderr
    assert ended.stdout.splitlines()[-1].endswith(" closed")
    assert values(broker, 1) == [b"first"]


def test_no_finalizer_waits_for_a_network_thread_that_the_end_has_stopped(broker: Broker) -> None:
    """A callback of a future keeps it for ever."""
    program = f"""
        import threading
        from kadence import Producer
        from kadence.client import engine
        from kadence.errors import ClosedError
        from kadence.producer import producer
        producer.FAREWELL_MS = engine.END_MS = 1

        class Late:
            def __del__(self):
                for call in (second.result, p.flush, lambda: p.send("t", b"x")):
                    try:
                        call()
                    except ClosedError:
                        print("refused")
                p.close()

        # Not in this module: its frame would keep that alive for good, and no finalizer would be called.
        entered = threading.Event()
        elsewhere = {{"entered": entered, "Event": threading.Event}}
        exec("def stuck(future): entered.set(); Event().wait()", elsewhere)
        stuck = elsewhere["stuck"]

        p = Producer(bootstrap_servers={broker.bootstrap_servers!r})
        first = p.send("t", b"first")
        first.add_done_callback(stuck)
        entered.wait()
        second = p.send("t", b"second")
        late = Late()
    """
    ended = run(program)
    assert ended.stdout == "refused\n" * 3, ended.stderr
    assert "records lost: 1 in 1 batches" in ended.stderr


FLOOD = """
    import os, threading
    from kadence import Producer
    from kadence.errors import ClosedError
    from kadence.producer import producer
    producer.FAREWELL_MS = {time_ms}

    def flood():
        number = 0
        while True:
            try:
                p.send("t", b"%d" % number)
            except ClosedError:
                return
            os.write(1, b".")
            number += 1
            if number == 100:
                enough.set()

    p = Producer(bootstrap_servers={servers!r})
    p.partitions_for("t")
    enough = threading.Event()
    threading.Thread(target=flood, daemon=True).start()
    enough.wait()
"""


@pytest.mark.parametrize("time_ms", [20_000, 1], ids=["written", "lost"])
def test_what_a_daemon_thread_sends_at_the_end_is_written_or_counted(broker: Broker, time_ms: int) -> None:
    if time_ms == 1:
        broker.faults.drop(ProduceRequest)
    ended = run(FLOOD.format(servers=broker.bootstrap_servers, time_ms=time_ms))
    told = re.findall(r"records lost: (\d+)", ended.stderr)
    if time_ms == 1:
        count = sum(map(int, told))
    else:
        assert not told
        count = written(broker)
    # The last one may be taken, and its dot not written yet.
    assert count - len(ended.stdout) in (0, 1), ended.stderr


def written(broker: Broker) -> int:
    from kadence import Consumer, TopicPartition

    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        end: int = consumer.end_offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)]
        return end


def test_a_producer_made_unclosed_in_a_pool_of_processes_ends_after_the_program_s_finalizers(
    broker: Broker,
) -> None:
    program = f"""
        import multiprocessing
        from multiprocessing.util import Finalize
        from kadence import Producer
        def work():
            global p
            p = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
            Finalize(None, lambda: p.send("t", b"last"), exitpriority=0)
            Finalize(None, lambda: p.send("t", b"very last"), exitpriority=-10)
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            print(process.exitcode)
    """
    ended = run(program)
    assert ended.stdout == "0\n", ended.stderr
    assert values(broker, 2) == [b"last", b"very last"]


@pytest.mark.parametrize("before", ["atexit._clear()", "atexit._run_exitfuncs()"])
def test_a_producer_that_is_made_after_the_table_of_atexit_was_emptied_delivers(
    broker: Broker, before: str
) -> None:
    run(
        f"""
        import atexit
        from kadence import Producer
        first = Producer(bootstrap_servers={broker.bootstrap_servers!r})
        first.send_and_wait("t", b"first")
        {before}
        second = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
        second.send("t", b"second")
        """
    )
    assert values(broker, 2) == [b"first", b"second"]


def test_a_warning_that_is_an_error_keeps_nothing_from_being_delivered(broker: Broker) -> None:
    program = f"""
        from kadence import Producer
        producers = [Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000) for _ in "ab"]
        for p in producers:
            p.send("t", b"x")
    """
    assert "was not closed" in run(program, "-W", "error::ResourceWarning").stderr
    assert values(broker, 2) == [b"x", b"x"]


def test_a_handler_closes_a_producer_of_a_loop_that_is_closed(broker: Broker) -> None:
    program = f"""
        import asyncio, atexit

        @atexit.register
        def bye():
            asyncio.run(p.close())
            print("bye", p)

        from kadence import AsyncProducer

        async def make():
            global p
            p = AsyncProducer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
            await p.send("t", b"x")

        asyncio.run(make())
    """
    ended = run(program, "-X", "dev")
    assert "closed" in ended.stdout, ended.stderr
    assert "was not closed" not in ended.stderr
    assert values(broker, 1) == [b"x"]
