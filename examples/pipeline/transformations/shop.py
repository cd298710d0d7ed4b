"""Three flows of a shop: orders and payments in order of time, and two queues of orders.

A pipeline has no ``foreachBatch``. Outcomes of a queue are ``defaultOutcome`` (:func:`invoices`),
or rows for the sink ``kafka-share`` (:func:`shipments`). ``docs/spark/running.md`` says more.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

spark = SparkSession.active()
ORDERS, PAYMENTS = spark.conf.get("shop.orders"), spark.conf.get("shop.payments")


def kafka(group: str, topics: str) -> dict[str, str]:
    """Return options that all flows need."""
    return {
        "kafka.bootstrap.servers": spark.conf.get("shop.bootstrap.servers"),
        "kafka.group.id": f"{spark.conf.get('shop.group')}-{group}",
        "subscribe": topics,
    }


INVOICES = {**kafka("invoices", ORDERS), "startingOffsets": "earliest"}
SHIPMENTS = {**kafka("shipments", ORDERS), "startingOffsets": "earliest"}


@dp.table
def ledger() -> DataFrame:
    """Orders and payments, within a partition in the order of their timestamps."""
    options = {**kafka("ledger", f"{ORDERS},{PAYMENTS}"), "startingOffsets": "earliest"}
    entries = spark.readStream.format("kafka-ordered").options(**options).load()
    return entries.select("topic", F.col("value").cast("string").alias("entry"), "timestamp")


@dp.table
def invoices() -> DataFrame:
    """An invoice for each order. Its record is accepted when the row has been written."""
    orders = spark.readStream.format("kafka-share").options(**INVOICES)
    rows = orders.option("defaultOutcome", "accept").load()
    return rows.select("partition", "offset", F.col("value").cast("string").alias("invoice"))


@F.udf(returnType=StringType())
def ship(value: bytes) -> str:
    """Do the work of a record, and return its outcome."""
    return "accept" if value.startswith(b"order") else "reject"


dp.create_sink("shipment_outcomes", "kafka-share", SHIPMENTS)


@dp.append_flow(target="shipment_outcomes")
def shipments() -> DataFrame:
    """Ship each order, and reject what is no order."""
    orders = spark.readStream.format("kafka-share").options(**SHIPMENTS).load()
    return orders.select("topic", "partition", "offset", "receipt", ship("value").alias("outcome"))
