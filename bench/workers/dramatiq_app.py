"""dramatiq's function, on Redis."""

import os

import dramatiq
from counter import counter
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_BROKER"]))


@dramatiq.actor
def task(order):
    counter.add()
