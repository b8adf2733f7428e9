"""A worker: it posts orders to a web service, 16 at once, in order by key; it ends in order on SIGTERM or Ctrl-C.

    pip install "kadence[avro,prometheus,otel]"
    python examples/worker.py

Started again, it continues with what was not done. Start it several times at once, and they share the partitions.
Traces go wherever your OpenTelemetry SDK sends them, such as that of ``opentelemetry-instrument python worker.py``.
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
    """What the worker is for. It may take minutes, and come again after a crash: the key tells the service."""
    key = f"{order.topic}-{order.partition}-{order.offset}"
    headers = {"content-type": "application/json", "idempotency-key": key}
    inject(headers)  # The service's spans belong to the order's trace.
    with urlopen(Request(SHOP, json.dumps(order.value).encode(), headers), timeout=30):
        print(order.partition, order.offset, order.value["item"], flush=True)


class Web(MetricsHandler):
    """The probes of Kubernetes ask for ``/live`` and ``/ready``; Prometheus is given the metrics."""

    def do_GET(self) -> None:
        health = consumer.health()
        if {"/live": health.alive, "/ready": health.ready}.get(self.path, True):
            super().do_GET()
        else:
            self.send_error(503, explain="\n".join(health.why))


values = AvroDeserializer(SchemaRegistryClient(REGISTRY_URL))
settings = {"bootstrap.servers": SERVERS, "group.id": "worker", "auto.offset.reset": "earliest"}
# Some seconds less than the supervisor waits before it kills: 30 in Kubernetes.
with stop_on_signals(grace=25) as stop, Consumer(settings, value_deserializer=values) as consumer:
    trace(consumer)
    REGISTRY.register(ClientCollector(consumer))
    web = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Web)
    Thread(target=web.serve_forever, daemon=True).start()
    print(f"probes and metrics: http://localhost:{web.server_port}", flush=True)
    consumer.subscribe("orders")
    # Only what the network or the service refuses is worth another attempt; a bug in `work` is not.
    retry = Retry(attempts=3, on=(OSError,))
    consumer.process(work, workers=16, retry=retry, dead_letter="orders.dead", timeout=120, drain=20)
print("ended by", stop.received.name if stop.received else "itself")
