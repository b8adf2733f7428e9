"""The same service with Kadence.

    python examples/moving/aiokafka_service/after.py

What became of the old parts:

* ``start`` and ``stop`` are ``async with``.
* ``getmany(timeout_ms=500)`` is ``poll(0.5)``, in seconds; a loop over the result gives the records of all partitions.
* The task is not cancelled: ``stop`` lets it finish and commit the current batch.
* ``acks="all"`` and idempotence are the defaults.
* The functions that serialise work here, too; names such as ``"json"`` are shorter. ``"json"`` writes no spaces.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from kadence import AsyncConsumer, AsyncProducer, KafkaError

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")


class Payment(BaseModel):
    """What somebody paid."""

    account: str
    cents: int


async def read(consumer: AsyncConsumer[str, dict[str, int]], balances: Counter[str]) -> None:
    """Add up the payments, batch after batch."""
    await consumer.subscribe("payments")
    while not consumer.stopping:
        records = await consumer.poll(0.5, max_records=100)
        for record in records:
            balances[record.key] += record.value["cents"]
        # Also without records: a poll may have passed over some that it does not return. If not, this sends nothing.
        await consumer.commit(records)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Clients for as long as the service runs."""
    consumer: AsyncConsumer[str, dict[str, int]] = AsyncConsumer(
        bootstrap_servers=SERVERS,
        group_id="balances",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        key_deserializer="string",
        value_deserializer="json",
    )
    async with (
        AsyncProducer(
            bootstrap_servers=SERVERS, key_serializer="string", value_serializer="json", linger_ms=0
        ) as producer,
        consumer,
    ):
        balances: Counter[str] = Counter()
        reading = asyncio.create_task(read(consumer, balances))
        yield {"producer": producer, "balances": balances}
        consumer.stop(grace=20)
        await reading


app = FastAPI(lifespan=lifespan)


@app.post("/payments", status_code=201)
async def pay(payment: Payment, request: Request) -> dict[str, int]:
    """Write a payment, and say where it is."""
    try:
        written = await request.state.producer.send_and_wait(
            "payments", {"cents": payment.cents}, key=payment.account
        )
    except KafkaError as error:
        raise HTTPException(503, "not written") from error
    return {"partition": written.partition, "offset": written.offset}


@app.get("/balances")
async def balances(request: Request) -> dict[str, int]:
    """The sums of the payments that this process has read."""
    found: dict[str, int] = request.state.balances
    return found


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
