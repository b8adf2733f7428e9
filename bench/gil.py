"""What the interpreter costs the network thread beside a busy application thread.

    python bench/gil.py [--seconds 3] [--frame-mib 8]

A server process sends Fetch responses over loopback as fast as they are asked for; one thread of this process
receives them with `kadence.net`, another runs pure Python all the time. For plain TCP and TLS, with the compiled
drain and without: MiB received per second, how often the network thread had to come back for the interpreter per
MiB (each time it may wait a switch interval, 5 ms), and what share of its idle speed the busy thread kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
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
    """(MiB/s, hand-overs per MiB, CPU µs per MiB of the network thread, steps/s of the busy thread)."""
    from kadence.clock import SystemClock
    from kadence.connection.request import Lane, Request
    from kadence.net import ConnectionConfig, NetworkClient, stream
    from kadence.protocol.fetch import FetchRequest
    from kadence.types import Node

    clock, count = SystemClock(), Count()
    context = ssl.create_default_context(cafile=ca) if ca else None
    client = NetworkClient(ConnectionConfig(bootstrap=(("127.0.0.1", port),), ssl_context=context), clock)
    client.set_nodes([Node(0, "127.0.0.1", port)])
    selector: Any = client._selector
    selector.select = count.of(selector.select)
    if stream._drain is not None:
        stream._drain = type(
            "Counted", (), {**vars(stream._drain), "fill": staticmethod(count.of(stream._drain.fill))}
        )
    for cls in (stream._PlainStream, stream._TlsStream):
        made: Any = cls
        made.read_now, made.write_now = count.of(made.read_now), count.of(made.write_now)
    received, burnt = 0, 0.0
    done = threading.Event()
    error: list[Any] = []

    def network() -> None:
        nonlocal received, burnt
        while not done.is_set():
            client.send(Request(FetchRequest(), 0, clock.now_ms() + 30_000, Lane.FETCH))
            while not (ended := client.poll(1000)):
                pass
            if ended[0].lease is None:
                error.append(ended[0].error)
                return
            received += ended[0].lease.size
            burnt = time.thread_time()
            ended[0].lease.release()

    thread = threading.Thread(target=network)
    thread.start()
    # The first frames find no arena and a cold TCP window.
    time.sleep(0.5)
    start, before, calls, burnt_before, steps = time.perf_counter(), received, count.calls, burnt, 0
    while (now := time.perf_counter()) - start < seconds:
        if busy:
            sum(range(1000))
            steps += 1
        else:
            time.sleep(0.05)
    moved, used, cpu = (received - before) / MIB, count.calls - calls, burnt - burnt_before
    done.set()
    thread.join()
    client.close()
    if error:
        raise error[0]
    moved = max(moved, 0.001)
    return moved / (now - start), used / moved, 1e6 * cpu / moved, steps / (now - start)


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
    print(
        f"frames of {arguments.frame_mib:g} MiB; {arguments.seconds:g} s each; one busy Python thread beside"
    )
    print(
        f"{'':24}{'alone MiB/s':>12}{'busy MiB/s':>12}{'hand-overs/MiB':>16}{'CPU µs/MiB':>12}{'busy thread':>13}"
    )
    with tempfile.TemporaryDirectory() as directory:
        ca, server = certificates(Path(directory))
        for name, secure in (("plain", False), ("TLS", True)):
            context = None
            if secure:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(server)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                fork = multiprocessing.get_context("fork")
                process = fork.Process(
                    target=serve, args=(listener, context, int(arguments.frame_mib * MIB)), daemon=True
                )
                process.start()
                port = listener.getsockname()[1]
                for mode in ("auto", "off"):
                    rows = []
                    for busy in ("0", "1"):
                        command = [sys.executable, __file__, "--seconds", str(arguments.seconds)]
                        command += ["--one", str(port), str(ca) if secure else "", busy]
                        environment = {**os.environ, "KADENCE_EXTENSION": mode}
                        result = subprocess.run(
                            command, env=environment, capture_output=True, text=True, check=True
                        )
                        rows.append([float(word) for word in result.stdout.split()])
                    label = f"{name}, {'compiled' if mode == 'auto' else 'Python'}"
                    print(
                        f"{label:24}{rows[0][0]:>12.0f}{rows[1][0]:>12.0f}{rows[1][1]:>16.2f}"
                        f"{rows[1][2]:>12.0f}{rows[1][3] / idle:>12.0%}"
                    )
                process.kill()


if __name__ == "__main__":
    main()
