"""A web service with FastAPI that writes to a topic and reads from it.

    python examples/service/app.py            (needs: pip install fastapi uvicorn)
    curl -d '{"customer": "ann", "cents": 950}' -H 'content-type: application/json' localhost:8000/orders
    curl localhost:8000/totals

``POST /orders`` answers once brokers have acknowledged the order. A background task reads the orders and adds them up.
``/live`` and ``/ready`` are for the probes of Kubernetes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, PositiveInt

from kadence import AsyncConsumer, AsyncProducer, KafkaError

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")


class Order(BaseModel):
    """What a customer ordered."""

    customer: str
    cents: PositiveInt


@dataclass
class Shop:
    """What the handlers share."""

    producer: AsyncProducer
    consumer: AsyncConsumer[bytes, Order]
    totals: Counter[str] = field(default_factory=Counter)
    reading: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Add up the orders, until the consumer is stopped."""
        await self.consumer.subscribe("orders")
        async for record in self.consumer:
            self.totals[record.value.customer] += record.value.cents

    def alive(self) -> bool:
        """Whether the task still reads. If not, a restart helps."""
        return self.reading is not None and not self.reading.done() and self.consumer.health().alive

    def ready(self) -> bool:
        """Whether the consumer is ready: see `Consumer.health`."""
        return self.consumer.health().ready


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Clients for as long as the service runs. uvicorn handles signals, and then runs what follows the ``yield``."""
    async with (
        # Each request waits for its own record, so lingering would only delay it. If brokers are away, it waits for at
        # most max_block_ms + delivery_timeout_ms, here 10 s.
        AsyncProducer(
            bootstrap_servers=SERVERS,
            linger_ms=0,
            max_block_ms=4_000,
            delivery_timeout_ms=6_000,
            request_timeout_ms=3_000,
        ) as producer,
        AsyncConsumer(
            bootstrap_servers=SERVERS,
            group_id="totals",
            auto_offset_reset="earliest",
            value_deserializer=Order.model_validate_json,
        ) as consumer,
    ):
        shop = Shop(producer, consumer)
        shop.reading = asyncio.create_task(shop.read())
        yield {"shop": shop}
        consumer.stop(grace=20)
        await shop.reading


app = FastAPI(lifespan=lifespan)


def the_shop(request: Request) -> Shop:
    """The shop of this service."""
    shop: Shop = request.state.shop
    return shop


TheShop = Annotated[Shop, Depends(the_shop)]


@app.post("/orders", status_code=201)
async def post_order(order: Order, shop: TheShop) -> dict[str, int]:
    """Write an order, and say where it is."""
    try:
        written = await shop.producer.send_and_wait(
            "orders", order.model_dump_json().encode(), key=order.customer.encode()
        )
    except KafkaError as error:
        raise HTTPException(503, "the order could not be written; try again later") from error
    return {"partition": written.partition, "offset": written.offset}


@app.get("/totals")
async def totals(shop: TheShop) -> dict[str, int]:
    """The sums of the orders that this process has read; they begin at 0 when it starts."""
    return shop.totals


@app.get("/live")
async def live(shop: TheShop) -> None:
    """Liveness: 503 when this process should be restarted."""
    if not shop.alive():
        raise HTTPException(503)


@app.get("/ready")
async def ready(shop: TheShop) -> None:
    """Readiness: 503 while the consumer is not ready."""
    if not shop.ready():
        raise HTTPException(503)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
