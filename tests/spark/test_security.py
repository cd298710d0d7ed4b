"""Spark sources over TLS and with logins: an Apache Kafka, because headrace's own broker has neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.secure_kafka import LOGIN, SecureKafka
from tests.spark.conftest import Batches, make_queue

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]


def test_a_share_group_over_tls_with_a_login(
    spark: SparkSession, secure_kafka: SecureKafka, drain: Callable[..., Batches]
) -> None:
    flights = make_queue(secure_kafka.peer.bootstrap_servers, 50)
    over_tls = replace(flights, bootstrap_servers=secure_kafka.sasl_tls)
    secure = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required username="ann" password="s3cret";',
        "kafka.ssl.ca.location": str(secure_kafka.folder / "ca.pem"),
    }

    batches = drain(over_tls, **secure)

    assert batches.values() == list(range(50))
    assert flights.is_drained()
    for wrong, advice in (
        ({"kafka.sasl.jaas.config": None, "kafka.sasl.username": "ann", "kafka.sasl.password": "guess"}, "'ann'"),
        ({"kafka.ssl.ca.location": None}, "certificate"),
    ):
        options = over_tls.options(**{**secure, **wrong})
        with pytest.raises(AnalysisException, match=advice):
            spark.readStream.format("kafka-share").options(**options).load()
