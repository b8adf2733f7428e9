"""What examples/worker.py works with: orders in Avro, and the web service that takes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from opentelemetry.sdk.trace import TracerProvider

from kadence import Producer
from kadence.otel import trace
from kadence_schemas import AvroSerializer, SchemaRegistryClient

__all__ = ["Call", "Shop", "write_orders"]

ORDER: Final = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the service: what was ordered, the key against repeats, and the trace that it belongs to."""

    item: str
    key: str
    trace: str


class Shop:
    """The service, at ``url``. It answers 503 to the first call of every third order, and to all of one order."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.taken: list[Call] = []
        self.refusals: list[Call] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._server.server_port}/orders"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def status_of(self, call: Call) -> int:
        """What a call is answered."""
        with self._lock:
            every_third = int(call.item.rpartition(" ")[2]) % 3 == 0 and call not in self.refusals
            refuses = every_third or call.item == self.refused
            (self.refusals if refuses else self.taken).append(call)
            return 503 if refuses else 200


def write_orders(servers: str, registry: str, orders: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Write pairs of key and item, each within a trace of its own. Gives the trace of each item."""
    traces: dict[str, str] = {}
    provider = TracerProvider()
    tracer = provider.get_tracer("shop")
    with Producer(
        bootstrap_servers=servers,
        key_serializer="string",
        value_serializer=AvroSerializer(SchemaRegistryClient(registry), ORDER),
    ) as producer:
        trace(producer, tracer_provider=provider)
        for key, item in orders:
            with tracer.start_as_current_span("order") as span:
                traces[item] = f"{span.get_span_context().trace_id:032x}"
                producer.send("orders", {"item": item}, key=key)
    return traces


def _handler_of(shop: Shop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            item = json.loads(self.rfile.read(int(self.headers["content-length"])))["item"]
            trace_id = self.headers["traceparent"].split("-")[1]
            self.send_response(shop.status_of(Call(item, self.headers["idempotency-key"], trace_id)))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler
