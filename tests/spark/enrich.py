"""Two queries that are submitted to a cluster: workers of a share group, and a merge of topics.

    spark-submit … enrich.py BOOTSTRAP_SERVERS TOPIC GROUP FOLDER

The folder is shared by the driver, the executors and the test. `journal` there has a line for each
list of records that were delivered, and for each that were accepted. A query that reaches a phase
for which there is a file `hold-PHASE` writes the number of its process to `reached-PHASE`, and goes
on when `hold-PHASE` has been removed.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

import headrace
from headrace.spark import acknowledge, drain

RECORDS_PER_TRIGGER = 60
MOST_STARTS = 10

bootstrap_servers, topic, group_id, folder = sys.argv[1:5]


def here(phase):
    hold = Path(folder) / f"hold-{phase}"
    if hold.exists():
        Path(folder, f"reached-{phase}").write_text(str(os.getpid()))
        while hold.exists():
            time.sleep(0.05)


def note(event, **values):
    with open(Path(folder) / "journal", "a") as journal:
        journal.write(json.dumps({"event": event, **values}) + "\n")


def tell(phase):
    """Return a function for `mapInArrow` that stays in a phase after the first record batch."""

    def work(batches):
        note("task", python=sys.executable, headrace=headrace.__file__)
        for batch in batches:
            yield batch
            here(phase)

    return work


def share(batch, batch_id):
    here("acquired")
    batch.persist()
    rows = [list(row) for row in batch.select("partition", "offset", "deliveryCount").collect()]
    note("delivered", rows=rows)
    here("sunk")
    if acknowledge(batch).accepted == len(rows):
        note("accepted", rows=rows)
    here("acknowledged")
    batch.unpersist()


def run(name, writer):
    """Run a query to its end; start it again when it fails, as a supervisor does.

    On a machine without a free core it may fail at once: Spark waits 10 s for a Python process, and
    no longer.
    """
    for _ in range(MOST_STARTS):
        try:
            drain(
                writer.queryName(name).option("checkpointLocation", f"{folder}/checkpoint-{name}")
            )
        except Exception as error:
            note("failed", query=name, error=str(error))
            time.sleep(5)
        else:
            note("ended", query=name)
            return


def is_initialized():
    """Return True if all queries have the Python processes of their sources."""
    queries = spark.streams.active
    return bool(queries) and all(q.status["message"] != "Initializing sources" for q in queries)


spark = SparkSession.builder.appName("enrich").getOrCreate()
cluster = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
queue = (
    spark.readStream.format("kafka-share")
    .options(**cluster)
    .option("kafka.group.id", group_id)
    .option("startingOffsets", "earliest")
    .option("share.delivery.count.limit", 10)
    .option("share.session.timeout.ms", 5000)
    .option("maxOffsetsPerTrigger", RECORDS_PER_TRIGGER)
    .option("recordsPerTask", RECORDS_PER_TRIGGER // 2)
    .load()
)
merged = (
    spark.readStream.format("kafka-ordered")
    .options(**cluster)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 2 * RECORDS_PER_TRIGGER)
    .load()
)
note("started", python=sys.executable, headrace=headrace.__file__)
queries = {
    "share": queue.mapInArrow(tell("read"), queue.schema).writeStream.foreachBatch(share),
    "ordered": merged.mapInArrow(tell("merged"), merged.schema)
    .writeStream.format("parquet")
    .option("path", f"{folder}/merged"),
}
threads = [threading.Thread(target=run, args=query) for query in queries.items()]
for thread in threads:
    thread.start()
    while thread.is_alive() and not is_initialized():
        time.sleep(0.2)
for thread in threads:
    thread.join()
spark.stop()
