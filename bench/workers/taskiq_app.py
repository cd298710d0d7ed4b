"""taskiq's function, on Redis streams, which acknowledge."""

import os

from counter import counter
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(os.environ["BENCH_BROKER"])


@broker.task
async def task(order):
    counter.add()
