"""Spark sources over TLS and with logins: the formats with the broker under test, and all kinds of
logins and certificates with Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

import headrace.spark
from tests.secure_kafka import LOGIN, NAME, PASSWORD, SecureKafka
from tests.spark.conftest import Batches, Queue, make_queue
from tests.spark.ordered_topics import Topics, places
from tests.support import unique

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]


def over_tls(secure_kafka: SecureKafka) -> dict[str, str]:
    """Return options for TLS and a login, as for Spark's own Kafka source."""
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": (
            f'{LOGIN}.plain.PlainLoginModule required username="ann" password="s3cret";'
        ),
        "kafka.ssl.ca.location": str(secure_kafka.folder / "ca.pem"),
    }


WRONG = (
    (
        {
            "kafka.sasl.jaas.config": None,
            "kafka.sasl.username": "ann",
            "kafka.sasl.password": "guess",
        },
        "'ann'",
    ),
    ({"kafka.ssl.ca.location": None}, "certificate"),
)


def test_all_formats_over_tls_with_a_login(
    spark: SparkSession, secured: dict[str, str], drain: Callable[..., Batches]
) -> None:
    flights = Queue(secured["bootstrap.servers"], unique("flights"), unique("workers"), 1)
    admin = AdminClient(secured)
    admin.create_topics([NewTopic(flights.topic, 1)])[flights.topic].result(30)
    options = {f"kafka.{name}": value for name, value in secured.items()}
    rows = spark.range(20).selectExpr("cast(id as string) value")
    sink = {**options, "topic": flights.topic, "transactionalIdPrefix": flights.topic}
    rows.write.format("kafka-produce").mode("append").options(**sink).save()

    assert drain(flights, **options).values() == list(range(20))
    ordered = spark.read.format("kafka-ordered").options(**options, subscribe=flights.topic)
    assert ordered.load().count() == 20
    lag = spark.read.format("kafka-lag").options(**options, groups=flights.group_id).load()
    assert [row.lag for row in lag.collect()] == [0]


def test_a_share_group_over_tls_with_a_login(
    spark: SparkSession, secure_kafka: SecureKafka, drain: Callable[..., Batches]
) -> None:
    flights = make_queue(secure_kafka.peer.bootstrap_servers, 50)
    secured = replace(flights, bootstrap_servers=secure_kafka.sasl_tls)
    secure = over_tls(secure_kafka)

    batches = drain(secured, **secure)

    assert batches.values() == list(range(50))
    assert flights.is_drained()
    for wrong, advice in WRONG:
        options = secured.options(**{**secure, **wrong})
        with pytest.raises(AnalysisException, match=advice):
            spark.readStream.format("kafka-share").options(**options).load()


def test_topics_in_order_over_tls_with_a_login(
    spark: SparkSession, secure_kafka: SecureKafka, tmp_path: Path
) -> None:
    """A batch with PLAIN and a stream with SCRAM. The driver plans, the tasks read."""
    topics = Topics.create(secure_kafka.peer.bootstrap_servers, 2)
    topics.produce(0, range(0, 500, 10))
    topics.produce(1, range(5, 500, 10))
    group, secure = unique("secure"), over_tls(secure_kafka)
    given = {**topics.options(), "kafka.bootstrap.servers": secure_kafka.sasl_tls}

    assert (
        places(spark.read.format("kafka-ordered").options(**given, **secure).load().collect())
        == topics.merged()
    )

    rows: list[Row] = []
    scram = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": NAME,
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.location": secure["kafka.ssl.ca.location"],
    }
    stream = {
        **given,
        **scram,
        "kafka.group.id": group,
        "maxOffsetsPerTrigger": "60",
        "maxTaskIdleMs": "1",
    }
    headrace.spark.drain(
        spark.readStream.format("kafka-ordered")
        .options(**stream)
        .load()
        .writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    assert places(rows) == topics.merged()
    assert topics.committed(group) == topics.ends()

    for wrong, advice in WRONG:
        options = {
            name: value for name, value in {**given, **secure, **wrong}.items() if value is not None
        }
        with pytest.raises(AnalysisException, match=advice):
            spark.read.format("kafka-ordered").options(**options).load()


def test_client_certificates(
    spark: SparkSession, secure_kafka: SecureKafka, drain: Callable[..., Batches]
) -> None:
    """Drivers and executors present them. Without one, each source says what is required."""

    def options(form: str | None) -> dict[str, str]:
        return {
            f"kafka.{name}": value for name, value in secure_kafka.with_certificate(form).items()
        }

    flights = make_queue(secure_kafka.peer.bootstrap_servers, 20)
    secured = replace(flights, bootstrap_servers=secure_kafka.tls)
    assert drain(secured, **options("java")).values() == list(range(20))

    given = {"kafka.bootstrap.servers": secure_kafka.tls}
    topic = {"subscribe": flights.topic}
    ordered = (
        spark.read.format("kafka-ordered").options(**given, **topic, **options("inline")).load()
    )
    assert ordered.count() == 20
    lag = (
        spark.read.format("kafka-lag")
        .options(**given, groups=flights.group_id, **options("password"))
        .load()
    )
    assert {row.lag for row in lag.collect()} == {0}

    says = "requires a client certificate .*: check ssl.certificate.location and ssl.key.location"
    for form in (None, "stranger"):
        with pytest.raises(AnalysisException, match=says):
            spark.read.format("kafka-ordered").options(**given, **topic, **options(form)).load()
        with pytest.raises(AnalysisException, match=says):
            spark.read.format("kafka-lag").options(**given, **options(form)).load()
        with pytest.raises(AnalysisException, match=says):
            spark.readStream.format("kafka-share").options(
                **secured.options(), **options(form)
            ).load()
