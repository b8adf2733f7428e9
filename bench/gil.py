"""What the interpreter costs the network thread beside a busy application thread.

    python bench/gil.py [--seconds 3] [--frame-mib 8]

A server process answers Fetch requests over loopback; one thread of this process receives the answers with
`kadence.net`, another runs pure Python all the time. For plain TCP and TLS, two tables. Long frames, as fast as they
are asked for: MiB received per second, how often the network thread had to come back for the interpreter per MiB (each
time it may wait a switch interval, 5 ms), and what share of its idle speed the busy thread kept. And one small answer
at a time: how often for each, from the request to its answer, and how long that took. The application's thread, which
waits for it, has to come back once more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20
LONG_POLL_BELOW = 10_000


def serve(listener: socket.socket, context: ssl.SSLContext | None, frame_bytes: int) -> None:
    """Greets each connection and answers every Fetch with the same records."""
    from kadence.protocol import registry
    from kadence.protocol.api_versions import ApiVersion, ApiVersionsResponse
    from kadence.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData

    offered = [
        ApiVersion(api_key=k, min_version=c.MIN_VERSION, max_version=c.MAX_VERSION)
        for k, c in registry.REQUESTS.items()
    ]
    records = PartitionData(partition_index=0, high_watermark=1, records=bytes(frame_bytes))
    fetched = FetchResponse(responses=[FetchableTopicResponse(partitions=[records])])
    body = bytearray()
    while True:
        sock, _ = listener.accept()
        with context.wrap_socket(sock, server_side=True) if context else sock as peer:
            stream = peer.makefile("rb")
            while length := stream.read(4):
                header, _ = registry.decode_request(stream.read(int.from_bytes(length)))
                if header.request_api_key == 18:
                    answer = registry.encode_response(
                        ApiVersionsResponse(api_keys=offered),
                        header.request_api_version,
                        header.correlation_id,
                    )
                    peer.sendall(len(answer).to_bytes(4) + answer)
                    continue
                if not body:
                    answer = registry.encode_response(fetched, header.request_api_version, 0)
                    body += len(answer).to_bytes(4) + answer
                body[4:8] = header.correlation_id.to_bytes(4)
                if frame_bytes < LONG_POLL_BELOW:
                    # As a broker does that has to wait for a record; else the answer is there before it is waited for.
                    time.sleep(0.001)
                peer.sendall(body)
            stream.close()


class Count:
    """Calls that give the interpreter away on the network thread."""

    def __init__(self) -> None:
        self.calls = 0

    def of(self, function: Any) -> Any:
        def counted(*args: Any) -> Any:
            self.calls += 1
            return function(*args)

        return counted


def receive(port: int, ca: str | None, seconds: float, *, busy: bool) -> tuple[float, ...]:
    """Of each answer: bytes, hand-overs; MiB/s, CPU µs per MiB of the network thread, steps/s of the busy thread.

    Last: the median ms from sending a request to having its answer.
    """
    from kadence.clock import SystemClock
    from kadence.connection.request import ConnectionPurpose, Request
    from kadence.net import ConnectionConfig, NetworkClient, secured, sockets
    from kadence.protocol.fetch import FetchRequest
    from kadence.types import Node

    clock, count = SystemClock(), Count()
    context = ssl.create_default_context(cafile=ca) if ca else None
    client = NetworkClient(ConnectionConfig(bootstrap=(("127.0.0.1", port),), ssl_context=context), clock)
    client.set_nodes([Node(0, "127.0.0.1", port)])
    poller: Any = client._poller
    for cls in (sockets.PlainStream, secured.TlsStream):
        made: Any = cls
        made.read_now, made.write_now = count.of(made.read_now), count.of(made.write_now)

    def hand_overs() -> int:
        return int(count.calls + poller.releases)

    received, answers, burnt = 0, 0, 0.0
    took: list[int] = []
    done = threading.Event()
    error: list[Any] = []

    def network() -> None:
        nonlocal received, answers, burnt
        while not done.is_set():
            sent = time.perf_counter_ns()
            client.send(Request(FetchRequest(), 0, clock.now_ms() + 30_000, ConnectionPurpose.FETCH))
            while not (ended := client.poll(1000)):
                pass
            took.append(time.perf_counter_ns() - sent)
            if ended[0].loan is None:
                error.append(ended[0].error)
                return
            received += len(ended[0].response.responses[0].partitions[0].records)
            answers += 1
            burnt = time.thread_time()
            ended[0].loan.release()

    thread = threading.Thread(target=network)
    thread.start()
    # The first frames find no arena and a cold TCP window.
    time.sleep(0.5)
    start, before, burnt_before, steps = time.perf_counter(), (received, answers, hand_overs()), burnt, 0
    took.clear()
    while (now := time.perf_counter()) - start < seconds:
        if busy:
            sum(range(1000))
            steps += 1
        else:
            time.sleep(0.05)
    size, number, used = (
        after - old for after, old in zip((received, answers, hand_overs()), before, strict=True)
    )
    cpu = burnt - burnt_before
    median = sorted(took)[len(took) // 2] / 1e6 if took else 0.0
    done.set()
    thread.join()
    client.close()
    if error:
        raise error[0]
    moved = max(size / MIB, 0.001)
    elapsed = now - start
    return size / number, used / number, moved / elapsed, 1e6 * cpu / moved, steps / elapsed, median


def alone(seconds: float) -> float:
    """Steps per second of the busy thread without a neighbour."""
    start, steps = time.perf_counter(), 0
    while (now := time.perf_counter()) - start < seconds:
        sum(range(1000))
        steps += 1
    return steps / (now - start)


def certificates(where: Path) -> tuple[Path, Path]:
    import trustme

    authority = trustme.CA()
    ca, server = where / "ca.pem", where / "server.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(server))
    return ca, server


def run(port: int, ca: str, seconds: float) -> list[list[float]]:
    """`receive` in a process of its own, without and with a busy thread."""
    rows = []
    for busy in ("0", "1"):
        command = [sys.executable, __file__, "--seconds", str(seconds), "--one", str(port), ca, busy]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append([float(word) for word in result.stdout.split()])
    return rows


def compare(frame_bytes: int, seconds: float) -> dict[str, list[list[float]]]:
    """Rows of `run` by what was used."""
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        ca, server = certificates(Path(directory))
        for name, secure in (("plain", False), ("TLS", True)):
            context = None
            if secure:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(server)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                fork = multiprocessing.get_context("fork")
                process = fork.Process(target=serve, args=(listener, context, frame_bytes), daemon=True)
                process.start()
                port = listener.getsockname()[1]
                found[name] = run(port, str(ca) if secure else "", seconds)
                process.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--frame-mib", type=float, default=8.0)
    parser.add_argument("--one", nargs=3, metavar=("PORT", "CA", "BUSY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        port, ca, busy = arguments.one
        print(*receive(int(port), ca or None, arguments.seconds, busy=busy == "1"))
        return
    idle = alone(1.0)
    print(f"{arguments.seconds:g} s each; beside: one busy Python thread")
    print(f"\nfetches of {arguments.frame_mib:g} MiB")
    print(
        f"{'':24}{'alone MiB/s':>12}{'busy MiB/s':>12}{'hand-overs/MiB':>16}{'CPU µs/MiB':>12}{'busy thread':>13}"
    )
    for label, (quiet, beside) in compare(int(arguments.frame_mib * MIB), arguments.seconds).items():
        size, hand_overs, speed, cpu, steps, _ = beside
        print(
            f"{label:24}{quiet[2]:>12.0f}{speed:>12.0f}{hand_overs / size * MIB:>16.2f}{cpu:>12.0f}"
            f"{steps / idle:>12.0%}"
        )
    print("\none small fetch at a time")
    print(f"{'':24}{'alone ms':>12}{'busy ms':>12}{'hand-overs/answer':>19}{'busy thread':>13}")
    for label, (quiet, beside) in compare(100, arguments.seconds).items():
        print(f"{label:24}{quiet[5]:>12.2f}{beside[5]:>12.2f}{beside[1]:>19.2f}{beside[4] / idle:>12.0%}")


if __name__ == "__main__":
    main()
