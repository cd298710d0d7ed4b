"""A program for an installed headrace without extras: it runs in an environment of its own, and
prints what it has seen as JSON.
"""

from __future__ import annotations

import json

from confluent_kafka import Producer

import headrace
from headrace.blocking import ShareConsumer
from headrace.imports import MissingPackage

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(bootstrap_servers: str, codec: str) -> None:
    """Produce a record; the producer ends with it."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": codec})
    producer.produce("orders", codec.encode() * 100)
    producer.flush()


def values() -> list[bytes]:
    """Return the values of records of every codec, which a share consumer has decompressed."""
    with headrace.Broker() as broker:
        for codec in CODECS:
            produce(broker.bootstrap_servers, codec)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "packers"}
        records: list[headrace.Record] = []
        with ShareConsumer(conf, ["orders"], start="earliest") as queue:
            while len(records) < len(CODECS):
                records += queue.poll(timeout=10)
            queue.accept(records)
        return [record.value or b"" for record in records]


def refusals() -> list[str]:
    """Return what brokers say whose settings need an extra."""
    texts = []
    for setting in (
        {"listeners": "SSL://127.0.0.1:0"},
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"},
    ):
        try:
            headrace.Broker(config=setting).start()
        except MissingPackage as error:
            texts.append(str(error))
    return texts


if __name__ == "__main__":
    print(json.dumps({"values": [value.decode() for value in values()], "refusals": refusals()}))
