"""A web service with FastAPI and aiokafka: payments in by HTTP, balances read from their topic.

    python examples/moving/aiokafka_service/before.py

``after.py`` is the same service with Kadence.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")


class Payment(BaseModel):
    """What somebody paid."""

    account: str
    cents: int


async def read(consumer: AIOKafkaConsumer, balances: Counter[str]) -> None:
    """Add up the payments, batch after batch."""
    while True:
        batches = await consumer.getmany(timeout_ms=500, max_records=100)
        for records in batches.values():
            for record in records:
                balances[record.key] += record.value["cents"]
        if batches:
            await consumer.commit()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Start the clients, and stop them in the right order."""
    producer = AIOKafkaProducer(
        bootstrap_servers=SERVERS,
        acks="all",
        enable_idempotence=True,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    consumer = AIOKafkaConsumer(
        "payments",
        bootstrap_servers=SERVERS,
        group_id="balances",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    )
    await producer.start()
    try:
        await consumer.start()
        try:
            balances: Counter[str] = Counter()
            reading = asyncio.create_task(read(consumer, balances))
            yield {"producer": producer, "balances": balances}
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
        finally:
            await consumer.stop()
    finally:
        await producer.stop()


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
