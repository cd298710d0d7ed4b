"""A sink that is killed between any two steps of a micro-batch writes each record exactly once.

Tasks and the driver run in processes that kill themselves with SIGKILL, against a real broker and
without Spark: what Spark adds is that it replays the micro-batch.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.client.transactions import ONGOING, transactional_ids
from tests.spark.application import python_environment
from tests.spark.conftest import make_queue
from tests.spark.test_produce_sink import consume
from tests.support import unique

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TASKS = 2
ROWS = 5
BATCHES = 2

PROGRAM = """
import os, signal, sys
import pyarrow as pa
from headrace.spark.produce import sink
from headrace.spark.produce.commits import KafkaCommitLog, OpenTransactions
from headrace.spark.produce.options import ProduceOptions
from headrace.spark.produce.records import RecordProducer
from headrace.spark.produce.sink import WriteTask
from tests.spark.test_produce_killed import BATCHES, ROWS, TASKS

servers, topic, commit_topic, prefix = sys.argv[1:]
options = ProduceOptions.parse({
    "kafka.bootstrap.servers": servers, "transactionalIdPrefix": prefix, "topic": topic,
    "commitTopic": commit_topic,
})
left = -1

def step():
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

def stepping(of, name):
    method = getattr(of, name)
    def stepped(*arguments, **named):
        step()
        return method(*arguments, **named)
    setattr(of, name, stepped)

for of, name in (
    (RecordProducer, "begin"), (RecordProducer, "write"), (RecordProducer, "flush"),
    (OpenTransactions, "open_now"), (OpenTransactions, "no_longer_open"),
    (OpenTransactions, "abort_others"), (KafkaCommitLog, "fence"), (KafkaCommitLog, "last"),
    (KafkaCommitLog, "decide"),
):
    stepping(of, name)

commit_all = OpenTransactions.commit

def commit_in_turn(self, transactions):
    lost = []
    for one in transactions:
        step()
        lost += commit_all(self, [one])
    step()
    return lost

OpenTransactions.commit = commit_in_turn

def micro_batch(query, run, number):
    writer = sink.StreamProduceWriter(options, None)
    messages = []
    for task in range(TASKS):
        sink.current_task = lambda _: WriteTask(query, run, task, 0, number)
        rows = [f"{query} {number} {task} {row}" for row in range(ROWS)]
        messages.append(writer.write(iter([pa.RecordBatch.from_pydict({"value": rows})])))
    writer.commit(messages, number)

def in_child(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

killed_at = 0
while True:
    def first_run():
        global left
        left = killed_at
        micro_batch(f"query{killed_at}", "first", 0)
    ended = in_child(first_run)
    if ended == 0:
        break
    assert ended == -signal.SIGKILL, ended
    def second_run():
        for number in range(BATCHES):
            micro_batch(f"query{killed_at}", "second", number)
    assert in_child(second_run) == 0
    killed_at += 1
print(killed_at)
"""


def test_a_kill_at_any_step(bootstrap_servers: str) -> None:
    target = make_queue(bootstrap_servers, 0, partitions=2, topic=unique("written"))
    prefix, commit_topic = unique("sink"), unique("commits")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, bootstrap_servers, target.topic, commit_topic, prefix],
        stdout=subprocess.PIPE,
        text=True,
        env=python_environment(),
        check=True,
    )
    kills = int(done.stdout.split()[-1])
    steps_of_tasks, steps_of_driver = 4 * TASKS, 5 + TASKS + 1 + 1
    assert kills == steps_of_tasks + steps_of_driver
    expected = [
        f"query{kill} {batch} {task} {row}".encode()
        for kill in range(kills)
        for batch in range(BATCHES)
        for task in range(TASKS)
        for row in range(ROWS)
    ]
    expected += [
        f"query{kills} 0 {task} {row}".encode() for task in range(TASKS) for row in range(ROWS)
    ]
    found = consume(bootstrap_servers, target.topic, 2, len(expected))
    assert sorted(message.value() for message in found) == sorted(expected)
    assert target.ask(lambda cluster: transactional_ids(cluster, prefix, (ONGOING,))) == {}
