"""Each Spark source names the wrong setting, or the missing permission."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from headrace.secure_broker import SecureBroker
from tests.security.test_mistakes import MISTAKES
from tests.spark.conftest import finish

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TOPIC, GROUP = "orders", "packers"
SOURCES: Mapping[str, Mapping[str, str]] = {
    "kafka-share": {"subscribe": TOPIC, "kafka.group.id": GROUP},
    "kafka-ordered": {"subscribe": TOPIC},
    "kafka-lag": {"groups": GROUP},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    with SecureBroker(("bob", "carol", "dora", "eve")) as secure:
        config: dict[str, str | int] = dict(secure.client_config())
        admin = AdminClient(config)
        admin.create_topics([NewTopic(TOPIC)])[TOPIC].result(30)
        producer = Producer(config)
        producer.produce(TOPIC, b"1")
        assert producer.flush(30) == 0
        yield secure


def read(spark: SparkSession, source: str, config: Mapping[str, str], folder: Path) -> None:
    """Read a source, as a stream if it is only that."""
    options = {f"kafka.{name}": value for name, value in config.items()} | SOURCES[source]
    if source != "kafka-share":
        spark.read.format(source).options(**options).load().collect()
        return
    frame = spark.readStream.format(source).options(**options).load()
    finish(
        frame.writeStream.foreachBatch(lambda batch, _: batch.collect())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.parametrize("source", SOURCES)
def test_settings(spark: SparkSession, broker: SecureBroker, source: str, tmp_path: Path) -> None:
    for mistake in ("wrong password", "untrusted certificate", "plaintext on a TLS port"):
        change, text = MISTAKES[mistake]
        with pytest.raises(Exception, match=re.escape(text)):
            read(spark, source, change(broker.client_config()), tmp_path)


@pytest.mark.parametrize(
    ("source", "user", "given", "missing"),
    [
        ("kafka-share", "carol", ("DESCRIBE TOPIC", "READ GROUP"), "READ TOPIC"),
        ("kafka-ordered", "dora", ("DESCRIBE TOPIC",), "READ TOPIC"),
        ("kafka-lag", "eve", (), "DESCRIBE GROUP"),
    ],
)
def test_permissions(
    spark: SparkSession,
    broker: SecureBroker,
    source: str,
    user: str,
    given: tuple[str, ...],
    missing: str,
    tmp_path: Path,
) -> None:
    """The permission of the last step is named, be it of the driver or of an executor."""
    names = {"TOPIC": TOPIC, "GROUP": GROUP}
    for permission in given:
        operation, kind = permission.split()
        broker.allow(user, operation, kind, names[kind])
    operation, kind = missing.split()
    needs = f"the user needs the permission {operation} on {kind.lower()} '{names[kind]}'"
    with pytest.raises(Exception, match=re.escape(needs)):
        read(spark, source, broker.client_config(user), tmp_path)
