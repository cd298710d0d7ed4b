"""An application that copies records through tasks that fail, lose their executor, or stall.

    spark-submit … habits.py BOOTSTRAP_SERVERS FOLDER PREFIX

``PREFIX-in`` is copied to ``PREFIX-batch``, ``PREFIX-batch-stall``, ``PREFIX-stream`` and
``PREFIX-plain``; `FOLDER/shared` gets a line for each record that a share group has delivered. The
secret of all options is in `FOLDER/secret`. `FOLDER/shown` gets what Spark shows of the queries:
plans, progress, its page, and its REST API.
"""

import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession

from headrace.spark import acknowledge, drain, register

STALL_S = 60

bootstrap_servers, folder, prefix = sys.argv[1:4]
secret = Path(folder, "secret").read_text()
module = "org.apache.kafka.common.security.plain.PlainLoginModule"
connection = {
    "kafka.bootstrap.servers": bootstrap_servers,
    "kafka.sasl.username": "eve",
    "kafka.sasl.password": secret,
    "kafka.sasl.jaas.config": f'{module} required username="eve" password="{secret}";',
    "kafka.ssl.key.password": secret,
    "kafka.ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----",
}


def in_trouble(job):
    """Return a function for `mapInArrow`. The first attempt of a task gives the sink all of its
    rows, and then:

    * task 0 fails, in a job of the share group too;
    * task 1 waits until task 2 has written its rows, and kills the executor of task 2;
    * task 3 stalls in a job of its own, so that Spark starts a second attempt on another host.
    """

    def work(batches):
        context = TaskContext.get()
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        stalls = job.endswith("stall") or (job == "stream" and batch_id == "1")
        loses = not stalls and job != "share" and batch_id in (None, "0")
        first, number = context.attemptNumber() == 0, context.partitionId()
        finished, killed = Path(folder, f"{job}-finished"), Path(folder, f"{job}-killed")
        for batch in batches:
            for start in range(0, batch.num_rows, 20):
                yield batch.slice(start, 20)
        if stalls and first and number == 3:
            Path(folder, f"{job}-stalled").touch()
            time.sleep(STALL_S)
        elif not stalls and first and number == 0:
            raise RuntimeError("this attempt fails")
        elif loses and number == 1 and not killed.exists():
            wait_for(finished)
            time.sleep(2)  # until task 2 has flushed its rows and ended
            killed.touch()
            os.kill(int(finished.read_text()), signal.SIGKILL)
        elif loses and number == 2 and not finished.exists():
            finished.write_text(str(executor()))
        elif loses and number == 3:
            wait_for(killed)

    return work


def executor():
    """Return the process of the executor that runs this task."""
    parents = psutil.Process().parents()
    return next(parent.pid for parent in parents if "java" in parent.name())


def wait_for(file):
    until = time.monotonic() + STALL_S
    while not file.exists() or not (file.name.endswith("killed") or file.read_text()):
        if time.monotonic() > until:
            raise TimeoutError(file.name)
        time.sleep(0.05)


def note(name, text):
    with open(Path(folder) / name, "a") as file:
        file.write(f"{text}\n")


def source(reader, name):
    options = {**connection, "subscribe": f"{prefix}-{name}", "startingOffsets": "earliest"}
    return reader.format("kafka-ordered").options(**options)


def rows(frame, job):
    schema = "key binary, value binary, timestamp timestamp, partition int"
    return frame.select("key", "value", "timestamp", "partition").mapInArrow(
        in_trouble(job), schema
    )


def sink(name, *, in_transactions=True):
    more = {"transactionalIdPrefix": f"{prefix}-{name}"} if in_transactions else {}
    return {**connection, "topic": f"{prefix}-{name}", "commitTopic": f"{prefix}-commits", **more}


def save(job, name, **more):
    writer = rows(source(spark.read, "in").load(), job).write.format("kafka-produce")
    writer.mode("append").options(**sink(name, **more)).save()


def run(writer, name):
    return drain(writer.queryName(name).option("checkpointLocation", f"{folder}/checkpoint-{name}"))


def share(batch, batch_id):
    batch.persist()
    for row in batch.select("partition", "offset", "deliveryCount").collect():
        note("shared", json.dumps(list(row)))
    acknowledge(batch)
    batch.unpersist()


def show(query, frame):
    """Note what Spark shows, to people and to its REST API."""
    note("shown", frame._jdf.queryExecution().toString())
    note("shown", query.recentProgress)
    address = spark.sparkContext.uiWebUrl
    application = f"api/v1/applications/{spark.sparkContext.applicationId}"
    for path in (
        "environment/",
        "SQL/",
        "StreamingQuery/",
        "jobs/",
        *(f"SQL/execution/?id={number}" for number in range(4)),
        *(f"{application}/{name}" for name in ("environment", "jobs", "sql?details=true")),
    ):
        with urllib.request.urlopen(f"{address}/{path}") as page:
            note("shown", page.read().decode())


spark = SparkSession.builder.appName("habits").getOrCreate()
register(spark)
spark.range(4, numPartitions=4).mapInArrow(lambda batches: batches, "id bigint").collect()

save("batch-lose", "batch")
save("batch-stall", "batch-stall")
save("plain-lose", "plain", in_transactions=False)
stream = source(spark.readStream, "in").option("maxOffsetsPerTrigger", 200).load()
copied = rows(stream, "stream").writeStream.format("kafka-produce").options(**sink("stream"))
show(run(copied, "stream"), stream)

queue = spark.readStream.format("kafka-share").options(
    **{
        **connection,
        "subscribe": f"{prefix}-in",
        "kafka.group.id": f"{prefix}-group",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 200,
        "recordsPerTask": 50,
    }
)
frame = queue.load()
run(frame.mapInArrow(in_trouble("share"), frame.schema).writeStream.foreachBatch(share), "share")

bad = source(spark.read, "in").option("subscribe", f"{prefix}-nowhere")
try:
    bad.load().collect()
except Exception as error:
    note("shown", error)
note("ended", "")
spark.stop()
