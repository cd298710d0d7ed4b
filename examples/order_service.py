"""An order service: an API that takes orders, and a worker that packs them.

headrace serve                                # a broker on 127.0.0.1:9092
uvicorn examples.order_service:api            # POST /orders {"item": "chair", "count": 2}
headrace worker examples.order_service:app    # start several: they share the orders
headrace ui                                   # the page shows what runs, waits and fails
"""

from __future__ import annotations

import asyncio
import os

from fastapi import FastAPI
from pydantic import BaseModel, PositiveInt

import headrace

app = headrace.App(os.environ.get("HEADRACE_BOOTSTRAP_SERVERS", "127.0.0.1:9092"))
api = FastAPI(title="Orders")
STOCK = {"chair": 12, "lamp": 3}


class Order(BaseModel):
    item: str
    count: PositiveInt


@api.post("/orders", status_code=202)
async def take(order: Order) -> dict[str, str]:
    """Answer when the broker has written the order: nobody loses it after that."""
    sent = await pack.send(order)
    return {"order": f"{sent.partition}-{sent.offset}"}


@app.task(retry=headrace.Retry(6, first=2.0), timeout=30)
async def pack(delivery: headrace.Delivery, order: Order) -> None:
    """Pack an order, and have it shipped. A failure is tried again, five times."""
    if order.item not in STOCK:
        raise headrace.Reject(f"no such item: {order.item}")  # a dead letter, at once
    if STOCK[order.item] < order.count:
        raise headrace.Retry(after=60)  # when there is more
    await asyncio.sleep(0.5)
    STOCK[order.item] -= order.count
    delivery.log.info("packed %d of %s", order.count, order.item)
    await ship.send(order.item, order.count)


@app.task(concurrency=2)
def ship(item: str, count: int) -> None:
    """Run in a thread: it may block."""
    print(f"shipping {count} of {item}")
