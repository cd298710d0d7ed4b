"""What a source does to the Python worker in which its tasks run."""

from __future__ import annotations

import subprocess
import sys

import pytest

COLLECTIONS = """
import gc
from headrace.spark import python_worker

class Node: pass

counts, nodes = [], []
for _ in range(4):
    nodes += [Node() for _ in range(1000)]
    python_worker.prepare()
    counts.append(gc.get_freeze_count())
cycle = Node()
cycle.cycle = cycle
del cycle
print(*counts, gc.collect())
"""

WRITES = """
import socket
from headrace.spark import python_worker

listener = socket.create_server(("127.0.0.1", 0))
worker = socket.create_connection(listener.getsockname())
spark, _ = listener.accept()


def exchange():
    spark.sendall(b"1")
    worker.recv(1)
    worker.sendall(b"2")
    spark.recv(1)


def has_arrived():
    try:
        return bool(worker.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return False


def arrivals():
    # Linux delays acknowledgements on connections that had questions and answers.
    [exchange() for _ in range(5)]
    spark.sendall(b"first")
    worker.recv(5)
    spark.sendall(b"second")
    before = has_arrived()
    python_worker.prepare()
    after = has_arrived()
    worker.recv(6, socket.MSG_WAITALL)
    return before, after


# A machine that stands still lets the delay pass.
print((False, True) in [arrivals() for _ in range(20)])
"""

OTHERS = """
import os, socket
from headrace.spark import python_worker

def descriptors():
    return len(os.listdir("/proc/self/fd"))

with socket.create_server(("127.0.0.1", 0)) as listener, socket.socketpair()[0]:
    before = descriptors()
    python_worker.prepare()
    print(descriptors() == before)
    os.environ["PYTHON_UNIX_DOMAIN_ENABLED"] = "true"
    python_worker._connection_to_spark.cache_clear()
    user = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    python_worker.prepare()
    user.close()
    other.settimeout(10)
    print(other.recv(1) == b"")
"""


def test_a_collection_leaves_out_what_the_first_tasks_have_imported() -> None:
    first, second, third, fourth, collected = map(int, printed(COLLECTIONS))
    assert 10_000 < first < second
    assert third == fourth == second  # what comes later is collected
    assert collected >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="Linux delays acknowledgements")
def test_the_rest_of_a_task_need_not_wait_for_an_acknowledgement() -> None:
    assert printed(WRITES) == ["True"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux delays acknowledgements")
def test_no_connection_but_that_of_spark_is_kept() -> None:
    assert printed(OTHERS) == ["True", "True"]


def printed(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()
