"""An application that reads with one Python after the other, each of which lacks something.

    spark-submit … executor_mistakes.py BOOTSTRAP_SERVERS TOPIC JOURNAL NAME=PYTHON…

`journal` gets a line for each Python, with the text of the error.
"""

import json
import sys

from pyspark.sql import SparkSession

from headrace.spark import OrderedDataSource

bootstrap_servers, topic, journal, *pythons = sys.argv[1:]
spark = SparkSession.builder.appName("mistakes").getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
for python in pythons:
    name, spark.sparkContext.pythonExec = python.split("=", 1)
    spark.dataSource.register(OrderedDataSource)
    try:
        spark.read.format("kafka-ordered").options(**options).load().collect()
        text = ""
    except Exception as error:
        text = str(error)
    with open(journal, "a") as file:
        file.write(json.dumps({"name": name, "text": text}) + "\n")
spark.stop()
