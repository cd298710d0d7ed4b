"""`kill -9` during continuous compaction: the last acknowledged record of each key is there."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.confluent import PATIENCE_S, consumer
from tests.support import COMMON_CONFIGS, RUN_SEED, HeadraceProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROUNDS = int(os.environ.get("HEADRACE_TEST_KILLS", "4"))
KEYS = 50
CONFIGS = {**COMMON_CONFIGS, "log.cleaner.backoff.ms": "1", "log.cleaner.threads": "2"}


@pytest.mark.slow
def test_what_was_acknowledged_survives_kills_during_compaction(tmp_path: Path) -> None:
    seed = RUN_SEED
    print(f"seed {seed}")
    rng = random.Random(seed)
    acknowledged: dict[bytes, tuple[int, bytes]] = {}
    given: dict[int, bytes] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        key, value, offset = message.key(), message.value(), message.offset()
        if error is None:
            assert key is not None
            assert value is not None
            assert offset is not None
            assert given.setdefault(offset, value) == value
            if offset >= acknowledged.get(key, (-1, b""))[0]:
                acknowledged[key] = offset, value

    with HeadraceProcess(tmp_path / "data", CONFIGS) as server:
        topic = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "20000",
            "min.cleanable.dirty.ratio": "0.01",
        }
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1, config=topic)])["t"].result(PATIENCE_S)
        swaps = serial = 0
        for _ in range(ROUNDS):
            settings = {
                "bootstrap.servers": server.bootstrap_servers,
                "linger.ms": 1,
                "message.timeout.ms": 20_000,
            }
            producer = Producer(
                {**settings, "compression.type": rng.choice(["none", "zstd", "lz4"])}
            )
            until = time.monotonic() + rng.uniform(0.3, 1.0)
            while time.monotonic() < until:
                serial += 1
                value = b"%d" % serial + bytes(rng.randrange(300))
                with contextlib.suppress(BufferError):  # the broker is slower than this loop
                    producer.produce("t", value, b"%d" % rng.randrange(KEYS), on_delivery=note)
                producer.poll(0.0005)
            server.kill()
            producer.purge()
            producer.flush(0)
            swaps += (
                any((tmp_path / "data" / "t-0").glob("*.swap"))
                or (tmp_path / "data" / "t-0" / "cleaning").exists()
            )
            server.start()
            with consumer(
                server.bootstrap_servers, "g", enable_partition_eof=True, check_crcs=True
            ) as source:
                source.assign([TopicPartition("t", 0, 0)])
                found: dict[bytes, tuple[int, bytes]] = {}
                last = -1
                while (message := source.poll(PATIENCE_S)) is not None and not message.error():
                    key, value, offset = message.key(), message.value(), message.offset()
                    assert (
                        key is not None
                        and value is not None
                        and offset is not None
                        and offset > last
                    )
                    last = offset
                    assert given.get(offset, value) == value
                    found[key] = offset, value
                assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
                for key, (offset, value) in acknowledged.items():
                    assert found[key] == (offset, value) or found[key][0] > offset, (
                        key,
                        found[key],
                        offset,
                    )
        assert len(acknowledged) == KEYS
        print(
            f"killed in the midst of compaction in {swaps} of {ROUNDS} rounds, {serial} "
            f"records, {len(given)} kept"
        )
