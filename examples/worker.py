"""A worker: posts orders to a web service, up to 16 at once, in order for each key; SIGTERM or Ctrl-C ends it.

    pip install "kadence[avro,prometheus,otel]"
    python examples/worker.py

Started again, it continues with the orders that were not done. Several workers share the partitions; on one machine,
give each its own $PORT. Traces go wherever your OpenTelemetry SDK sends them, such as that of
``opentelemetry-instrument python worker.py``.
"""

import json
import os
from http.server import ThreadingHTTPServer
from threading import Thread
from urllib.request import Request, urlopen

from opentelemetry.propagate import inject
from prometheus_client import REGISTRY, MetricsHandler

from kadence import Consumer, Record, Retry, stop_on_signals
from kadence.metrics.prometheus import ClientCollector
from kadence.otel import trace
from kadence_schemas import AvroDeserializer, SchemaRegistryClient

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")
REGISTRY_URL = os.environ.get("KADENCE_SCHEMA_REGISTRY", "http://localhost:8081")
SHOP = os.environ.get("SHOP", "http://localhost:8001/orders")


def work(order: Record[bytes, dict[str, str]]) -> None:
    """Post one order. After a crash it may be posted again: the idempotency key lets the service notice that."""
    key = f"{order.topic}-{order.partition}-{order.offset}"
    headers = {"content-type": "application/json", "idempotency-key": key}
    inject(headers)  # The service's spans belong to the order's trace.
    with urlopen(Request(SHOP, json.dumps(order.value).encode(), headers), timeout=30):
        print(order.partition, order.offset, order.value["item"], flush=True)


class Web(MetricsHandler):
    """``/live`` and ``/ready`` answer the probes of Kubernetes; any other path returns metrics for Prometheus."""

    def do_GET(self) -> None:
        health = consumer.health()
        if {"/live": health.alive, "/ready": health.ready}.get(self.path, True):
            super().do_GET()
        else:
            self.send_error(503, explain="\n".join(health.why))


values = AvroDeserializer(SchemaRegistryClient(REGISTRY_URL))
settings = {"bootstrap.servers": SERVERS, "group.id": "worker", "auto.offset.reset": "earliest"}
# Some seconds less than the supervisor waits before it kills the process: Kubernetes waits 30 by default.
with stop_on_signals(grace=25) as stop, Consumer(settings, value_deserializer=values) as consumer:
    trace(consumer)
    REGISTRY.register(ClientCollector(consumer))
    web = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Web)
    Thread(target=web.serve_forever, daemon=True).start()
    print(f"probes and metrics: http://localhost:{web.server_port}", flush=True)
    consumer.subscribe("orders")
    # OSError: the service cannot be reached or refuses the order. A bug in `work` gets no further attempt.
    retry = Retry(attempts=3, on=(OSError,))
    consumer.process(work, workers=16, retry=retry, dead_letter="orders.dead", timeout=120, drain=20)
print("ended by", stop.received.name if stop.received else "itself")
