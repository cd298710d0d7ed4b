"""``python -m tests.spark.class_archive``: keep the classes of Spark for the JVMs of tests.

A JVM that starts Spark spends half of its CPU time on reading and checking its classes.
This program runs small queries of the kinds that tests run, and lets the JVM write the classes that
it has loaded to `SPARK_CLASSES`, which later JVMs map. A JVM of another version, or with another
class path, reads its classes as usual.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace
import headrace.spark
from headrace.spark import acknowledge
from tests.spark.application import application
from tests.support import SHORT_LIVED_JVM, SPARK_CLASSES


def main() -> None:
    """Write the archive."""
    with TemporaryDirectory(dir=SPARK_CLASSES.parent) as folder:
        written = Path(folder, SPARK_CLASSES.name)
        options = f"{SHORT_LIVED_JVM} -Xlog:disable -XX:ArchiveClassesAtExit={written}"
        session = application(2, {"spark.driver.extraJavaOptions": options})
        with headrace.Broker() as broker:
            _run_queries(session, broker.bootstrap_servers, Path(folder))
        jvm = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        session.stop()
        jvm.stdin.close()  # Spark's gateway ends with its input
        jvm.wait()
        written.replace(SPARK_CLASSES)


def _run_queries(session: SparkSession, bootstrap_servers: str, folder: Path) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(100):
        producer.produce("flights", b"%d" % number, b"k%d" % (number % 7))
    producer.flush()
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": "flights"}

    rows = session.read.format("kafka-ordered").options(**options).load()
    keyed = rows.select(F.col("key").cast("string"), F.col("value").cast("string"), "timestamp")
    keyed.write.partitionBy("key").parquet(str(folder / "parquet"))
    read = session.read.parquet(str(folder / "parquet"))
    read.join(read.groupBy("key").count(), "key").orderBy("value").collect()
    read.groupBy("key").applyInPandas(lambda frame: frame.head(1), read.schema).collect()

    def process(batch: DataFrame, number: int) -> None:
        acknowledge(batch.withColumn("outcome", F.lit("accept")))

    queue = {**options, "kafka.group.id": "workers", "startingOffsets": "earliest"}
    stream = session.readStream.format("kafka-share").options(**queue).load()
    writer = stream.writeStream.foreachBatch(process)
    headrace.spark.drain(writer.option("checkpointLocation", str(folder / "checkpoint")))


if __name__ == "__main__":
    main()
