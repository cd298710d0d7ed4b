"""Celery's function; BENCH_BROKER is the URL of its broker."""

import os

from celery import Celery
from counter import counter

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, task_acks_late=True)


@app.task
def task(order):
    counter.add()
