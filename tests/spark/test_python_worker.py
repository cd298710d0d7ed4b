"""What a source does to the Python worker in which its tasks run."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
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


def test_a_collection_leaves_out_what_the_first_tasks_have_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, second, third, fourth, collected = map(int, done.stdout.split())
    assert 10_000 < first < second
    assert third == fourth == second  # what comes later is collected
    assert collected >= 1
