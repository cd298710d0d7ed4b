"""OrderedConsumer when topics or records are deleted or replaced: it continues, or raises on each
call.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from headrace.client import ClientError, InvalidTopics, OrderedConsumer
from headrace.client.ordered import consumer as ordered_consumer
from tests.clients.confluent import PATIENCE_S, admin, consumer, create_topic
from tests.clients.test_ordered_consumer import PROTOCOLS, in_group, take, write
from tests.support import unique, wait_until


class Inputs:
    """Two topics, and the configuration of a consumer that looks them up often."""

    def __init__(self, bootstrap_servers: str, partitions: int = 1) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.names = [
            create_topic(bootstrap_servers, unique(name), partitions) for name in ("left", "right")
        ]
        self.conf = {
            "bootstrap.servers": bootstrap_servers,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 2,
        }

    def write(self, topic: int, timestamps: list[int]) -> None:
        write(self.bootstrap_servers, self.names[topic], 0, timestamps)

    def drop(self, topic: int) -> None:
        admin(self.bootstrap_servers).delete_topics([self.names[topic]])[self.names[topic]].result(
            PATIENCE_S
        )

    def drop_records(self, topic: int, before: int) -> None:
        place = TopicPartition(self.names[topic], 0, before)
        admin(self.bootstrap_servers).delete_records([place])[place].result(PATIENCE_S)

    def make_again(self, topic: int) -> None:
        self.drop(topic)

        def created() -> bool:  # Kafka may still know of the old one
            try:
                return bool(create_topic(self.bootstrap_servers, self.names[topic]))
            except KafkaException as refusal:
                if refusal.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False

        wait_until(created, PATIENCE_S, "the topic to be made again")

    def commit(self, group_id: str, *offsets: int) -> None:
        places = [
            TopicPartition(name, 0, offset)
            for name, offset in zip(self.names, offsets, strict=True)
        ]
        with consumer(self.bootstrap_servers, group_id) as anyone:
            anyone.commit(offsets=places, asynchronous=False)

    def committed(self, group_id: str) -> list[int]:
        with consumer(self.bootstrap_servers, group_id) as anyone:
            found = anyone.committed(
                [TopicPartition(name, 0) for name in self.names], timeout=PATIENCE_S
            )
        return [place.offset for place in found]


@pytest.fixture
def inputs(bootstrap_servers: str) -> Inputs:
    return Inputs(bootstrap_servers)


def fails_each_time(source: OrderedConsumer, error: type[Exception], says: str) -> None:
    for _ in range(2):
        with pytest.raises(error, match=says):
            wait_until(lambda: source.poll(1) is not None, PATIENCE_S, "an error")


@pytest.fixture(params=PROTOCOLS, ids=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(ordered_consumer, "CHECK_INTERVAL_S", 0.2)
    return dict(request.param)


def test_a_topic_is_deleted(inputs: Inputs, group_id: str, protocol: dict[str, str]) -> None:
    """The other topic alone would have another order: none of its records is returned."""
    inputs.write(0, [10, 30])
    inputs.write(1, [20])
    with OrderedConsumer(in_group(inputs.conf | protocol, group_id), inputs.names) as source:
        assert len(take(source, 3)) == 3
        assert source.poll(0) is None
        inputs.drop(1)
        fails_each_time(source, InvalidTopics, f"{inputs.names[1]}.*: .*[Uu]nknown topic")
    assert inputs.committed(group_id)[0] == 2


def test_one_topic_gets_more_partitions(
    inputs: Inputs, group_id: str, protocol: dict[str, str]
) -> None:
    left, right = inputs.names
    with OrderedConsumer(in_group(inputs.conf | protocol, group_id), inputs.names) as source:
        wait_until(
            lambda: source.poll(0.1) is None and len(source.assignment()) == 2,
            PATIENCE_S,
            "an assignment",
        )
        for widened in (
            admin(inputs.bootstrap_servers).create_partitions([NewPartitions(right, 2)]).values()
        ):
            widened.result(PATIENCE_S)
        says = f"not co-partitioned: of partitions, '{left}' has 1, '{right}' has 2"
        fails_each_time(source, InvalidTopics, says)


def test_a_topic_is_made_again_with_fewer_records(inputs: Inputs, group_id: str) -> None:
    inputs.write(0, [10])
    inputs.write(1, [20, 30])
    unaware = {**inputs.conf, "topic.metadata.refresh.interval.ms": 300_000}
    with OrderedConsumer(in_group(unaware, group_id), inputs.names) as source:
        assert len(take(source, 3)) == 3
        inputs.make_again(1)
        inputs.write(1, [40])
        assert take(source, 1) == [(inputs.names[1], 0, 0)]


def test_records_go_beneath_its_position(inputs: Inputs, group_id: str) -> None:
    left, right = inputs.names
    inputs.write(0, [10, 20, 30, 40])
    inputs.write(1, [15, 35])
    inputs.commit(group_id, 1, 0)
    inputs.drop_records(0, 3)
    with OrderedConsumer(in_group(inputs.conf, group_id), inputs.names) as source:
        assert take(source, 3) == [(right, 0, 0), (right, 0, 1), (left, 0, 3)]


@pytest.mark.parametrize("position", [1, 1000])
def test_an_offset_out_of_range_without_a_reset(
    inputs: Inputs, group_id: str, position: int
) -> None:
    """Every call raises, because waiting for the partition would not end; nothing is committed."""
    inputs.write(0, [10, 20, 30, 40])
    inputs.write(1, [15, 35])
    inputs.commit(group_id, position, 0)
    inputs.drop_records(0, 3)
    conf = in_group(inputs.conf | {"auto.offset.reset": "error"}, group_id)
    with OrderedConsumer(conf, inputs.names) as source:
        says = (
            f"{inputs.names[0]}-0 cannot be read from its position: .*reset the group's "
            f"offsets, or set auto.offset"
        )
        fails_each_time(source, ClientError, says)
    assert inputs.committed(group_id) == [position, 0]
