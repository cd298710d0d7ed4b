"""Typical mistakes of users of the Spark sources, and the line that each must lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.secure_broker import SecureBroker
from tests.support import HANG_S, wait_until

TOPIC, GROUP, OF_CONSUMERS = "orders", "packers", "consumers"
STRANGER = "eve"
"""A user whom nothing is allowed."""

Options = dict[str, str]
REQUIRED: Mapping[str, Options] = {
    "kafka-share": {"subscribe": TOPIC, "kafka.group.id": GROUP},
    "kafka-ordered": {"subscribe": TOPIC, "startingOffsets": "earliest"},
    "kafka-lag": {},
}


class Scene:
    """A broker with a topic of two partitions and a group of consumers.

    It requires TLS and a login.
    """

    def __init__(self) -> None:
        self._broker = SecureBroker((STRANGER,))

    def options(self, source: str, user: str | None = None) -> Options:
        """Return the options of a query without a mistake."""
        config = self._broker.client_config(*([user] if user else []))
        return {f"kafka.{name}": value for name, value in config.items()} | REQUIRED[source]

    def __enter__(self) -> Scene:
        config: dict[str, Any] = dict(self._broker.__enter__().client_config())
        admin = AdminClient(config)
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(30)
        producer = Producer(config)
        producer.produce(TOPIC, b"1")
        assert producer.flush(30) == 0
        member = Consumer({**config, "group.id": OF_CONSUMERS, "auto.offset.reset": "earliest"})
        member.subscribe([TOPIC])
        wait_until(lambda: member.poll(0.1), HANG_S, "the group of consumers to have a member")
        self._member = member
        return self

    def __exit__(self, *_: object) -> None:
        self._member.close()
        self._broker.stop()


class Mistake(NamedTuple):
    """A query with one mistake.

    :ivar change: returns the options with the mistake
    :ivar text: a part of the only line that the error may have
    :ivar user: the login of the query, if it is not one who may do everything
    """

    source: str
    change: Callable[[Options], Options]
    text: str
    user: str | None = None


def _set(**options: str) -> Callable[[Options], Options]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return lambda given: {**given, **named}


def _without(name: str) -> Callable[[Options], Options]:
    return lambda given: {other: value for other, value in given.items() if other != name}


_CHOOSE_GROUP = "choose another kafka.group.id"
_JSON = 'option startingOffsets cannot be parsed: use JSON such as {"flights": {"0": 23, "1": -1}}'
_NOWHERE = _set(kafka__bootstrap__servers="127.0.0.1:1")
_DOWN = (
    "no broker answers at 127.0.0.1:1: Connection refused: check that the brokers run, and the "
    "option kafka.bootstrap.servers"
)

MISTAKES: Mapping[str, Mistake] = {
    "unknown option": Mistake(
        "kafka-share",
        _set(subscripe=TOPIC),
        "unknown option 'subscripe': did you mean subscribe?",
    ),
    "unusable value": Mistake(
        "kafka-share",
        _set(maxOffsetsPerTrigger="many"),
        "option maxOffsetsPerTrigger is 'many': use a whole number from 1",
    ),
    "missing option": Mistake(
        "kafka-share", _without("kafka.group.id"), "set the option kafka.group.id: the share group"
    ),
    "missing topic, share": Mistake(
        "kafka-share", _set(subscribe="ordres"), "topic 'ordres' does not exist: create it first"
    ),
    "missing topic, ordered": Mistake(
        "kafka-ordered", _set(subscribe="ordres"), "topic 'ordres' does not exist: create it first"
    ),
    "group of consumers, share": Mistake(
        "kafka-share",
        _set(kafka__group__id=OF_CONSUMERS),
        "'consumers' is a classic group, not a share group: " + _CHOOSE_GROUP,
    ),
    "group of consumers, ordered": Mistake(
        "kafka-ordered",
        _set(kafka__group__id=OF_CONSUMERS),
        "group 'consumers' has consumers that commit offsets themselves: " + _CHOOSE_GROUP,
    ),
    "broker down, share": Mistake("kafka-share", _NOWHERE, _DOWN),
    "broker down, ordered": Mistake("kafka-ordered", _NOWHERE, _DOWN),
    "broker down, lag": Mistake("kafka-lag", _NOWHERE, _DOWN),
    "broken JSON": Mistake("kafka-ordered", _set(startingOffsets='{"orders": {"0": 1'), _JSON),
    "JSON without a partition": Mistake(
        "kafka-ordered",
        _set(startingOffsets='{"orders": {"0": 0}}'),
        "option startingOffsets lacks orders-1: name every partition of every topic",
    ),
    "no permission for the topic": Mistake(
        "kafka-share",
        _set(),
        "the user needs the permission DESCRIBE on topic 'orders'",
        user=STRANGER,
    ),
    "no permission for a group": Mistake(
        "kafka-lag",
        _set(groups=GROUP),
        "the user needs the permission DESCRIBE on group 'packers'",
        user=STRANGER,
    ),
}
"""Mistakes that `load()`, or the driver when the query starts, can see."""

FOREIGN_CHECKPOINT: Mapping[str, str] = {
    source: (
        f"the checkpoint is one of another query, because {source} has no offsets such as "
        '{"snapshot": 1}: set checkpointLocation to a folder of this query alone'
    )
    for source in ("kafka-share", "kafka-ordered")
}
"""The line for each source that is given the checkpoint of a query of `kafka-lag`."""


def make(spark: Any, scene: Scene, mistake: Mistake, checkpoint: Path) -> None:
    """Run the query of a mistake, as a stream if its source is only that."""
    options = mistake.change(scene.options(mistake.source, mistake.user))
    if mistake.source == "kafka-share":
        run_stream(spark, mistake.source, options, checkpoint)
    else:
        spark.read.format(mistake.source).options(**options).load().collect()


def run_stream(spark: Any, source: str, options: Options, checkpoint: Path) -> None:
    """Run a stream to its end, into nothing."""
    frame = spark.readStream.format(source).options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    # Not `drain`: before pyspark 4.2 it waits for a trigger without news, and kafka-lag has none.
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(HANG_S)


def problem(error: BaseException) -> str:
    """Return what an error says before Spark's own additions: the line that users read first."""
    return str(error).partition("\n")[0]
