"""Conversations: what a client says on one connection, step by step.

A step is ``(api key, fields)``; other fields are drawn. The response comes back, or None when there
is none. So requests get past the checks that noise does not pass.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

from tests.fuzz.batches import batch
from tests.fuzz.words import TOPICS, Words

Step = tuple[int, dict[str, Any]]
Talk = Generator[Step, Any, None]

_TRANSACTIONAL = 0x10


def get(response: Any, name: str, default: Any) -> Any:
    """Return a field of a response, or a default when it or the response is missing."""
    value = getattr(response, name, None)
    return default if value is None else value


def classic_member(words: Words) -> Talk:
    """Join a classic group, sync, heartbeat, commit, leave."""
    rng = words.rng
    group = {"group_id": rng.choice(("g-classic", "g-consumer"))}
    joining = {
        **group,
        "protocol_type": "consumer",
        "session_timeout": 6000,
        "rebalance_timeout": 100,
        "group_instance_id": rng.choice((None, None, "i1")),
        "protocols": [{"name": "range"}, {"name": "roundrobin"}][: rng.choice((1, 2))],
    }
    joined = yield 11, {**joining, "member_id": ""}
    member = {**group, "member_id": get(joined, "member_id", "")}
    if get(joined, "error_code", 0) == 79:
        joined = yield 11, {**joining, **member}
    epoch = {
        "generation_id": get(joined, "generation_id", 1),
        "generation_id_or_member_epoch": get(joined, "generation_id", 1),
    }
    assignments = [{"member_id": member["member_id"]}] * rng.choice((0, 1, 1, 2))
    yield 14, {**member, **epoch, "assignments": assignments, "protocol_type": "consumer"}
    for _ in range(rng.randrange(4)):
        yield rng.choice((12, 8, 9, 15, 28)), {**member, **epoch}
    yield 13, {**group, "members": [{"member_id": member["member_id"]}], **member}


def consumer_member(words: Words) -> Talk:
    """Join a group of the consumer protocol (KIP-848)."""
    rng = words.rng
    member = {"group_id": rng.choice(("g-consumer", "g-classic")), "member_id": f"m{rng.random()}"}
    epoch = 0
    for _ in range(rng.randrange(1, 6)):
        answer = yield (
            68,
            {
                **member,
                "member_epoch": epoch,
                "rebalance_timeout": 1000,
                "topic_partitions": rng.choice(([], None, [{}])),
                "subscribed_topic_names": rng.choice((["t0"], ["t0", "t1"], [])),
                "instance_id": rng.choice((None, None, "i1")),
                "server_assignor": rng.choice((None, "uniform", "range")),
            },
        )
        epoch = get(answer, "member_epoch", epoch)
        if rng.random() < 0.5:
            yield 8, {**member, "generation_id_or_member_epoch": epoch}
        if rng.random() < 0.3:
            yield rng.choice((9, 69, 15)), {"group_ids": [member["group_id"]]}
    yield 68, {**member, "member_epoch": rng.choice((-1, -2, epoch))}


def share_member(words: Words) -> Talk:
    """Join a share group, fetch, acknowledge."""
    rng = words.rng
    member = {"group_id": "g-share", "member_id": f"m{rng.randrange(100)}"}
    epoch, session_epoch = 0, 0
    for _ in range(rng.randrange(1, 6)):
        answer = yield (
            76,
            {**member, "member_epoch": epoch, "subscribed_topic_names": ["t0"], "rack_id": None},
        )
        epoch = get(answer, "member_epoch", epoch)
        fetched = yield (
            78,
            {
                **member,
                "share_session_epoch": session_epoch,
                "max_wait": 0,
                "max_records": rng.choice((1, 100, 0)),
                "max_bytes": 1 << 20,
                "batch_size": rng.choice((1, 100)),
                "topics": [{"partitions": [{"partition_index": 0}]}],
            },
        )
        session_epoch += 1
        acquired = [
            run
            for topic in get(fetched, "responses", ())
            for part in topic.partitions
            for run in part.acquired_records
        ]
        if acquired:
            run = rng.choice(acquired)
            acknowledged = {
                "first_offset": run.first_offset,
                "last_offset": run.last_offset,
                "acknowledge_types": rng.choice(([1], [2], [3], [4], [0], [1, 2, 3], [])),
            }
            part = {"partition_index": 0, "acknowledgement_batches": [acknowledged]}
            yield (
                79,
                {
                    **member,
                    "share_session_epoch": session_epoch,
                    "topics": [{"partitions": [part]}],
                },
            )
            session_epoch += 1
        if rng.random() < 0.3:
            yield rng.choice((77, 90, 91, 92)), {"group_ids": ["g-share"], "group_id": "g-share"}
    yield 79, {**member, "share_session_epoch": -1, "topics": []}
    yield 76, {**member, "member_epoch": -1}


def transaction(words: Words) -> Talk:
    """Produce in a transaction, and commit offsets in it."""
    rng = words.rng
    name = {"transactional_id": rng.choice(("x1", "x2"))}
    answer = yield (
        22,
        {
            **name,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        },
    )
    producer_id, epoch = get(answer, "producer_id", 0), get(answer, "producer_epoch", 0)
    producer = {**name, "producer_id": producer_id, "producer_epoch": epoch}
    v3 = {f"v3_and_below_{key}": value for key, value in producer.items()}
    sequence = 0
    for _ in range(rng.randrange(1, 4)):
        topic = rng.choice(("t0", "t1"))
        topics = [{"name": topic, "partitions": [0]}]
        adding = {**producer, "topics": topics, "verify_only": False}
        yield 24, {**v3, "v3_and_below_topics": topics, "transactions": [adding]}
        data = batch(rng, producer_id, epoch, sequence, _TRANSACTIONAL)
        sequence += 1 if rng.random() < 0.5 else 0
        part = {"index": 0, "records": data}
        yield 0, {**name, "acks": -1, "topic_data": [{"name": topic, "partition_data": [part]}]}
        if rng.random() < 0.5:
            yield 25, {**producer, "group_id": "g-classic"}
            yield (
                28,
                {
                    **producer,
                    "group_id": "g-classic",
                    "generation_id": -1,
                    "member_id": "",
                    "group_instance_id": None,
                },
            )
        if rng.random() < 0.3:
            yield rng.choice((65, 66, 61)), {}
        yield 26, {**producer, "committed": rng.random() < 0.7}


def fetch_session(words: Words) -> Talk:
    """Fetch in a session (KIP-227)."""
    rng = words.rng
    session = {"session_id": 0, "session_epoch": 0}
    for _ in range(rng.randrange(1, 6)):
        answer = yield 1, {**session, "max_wait": rng.choice((0, 0, 100)), "replica_id": -1}
        if answer is not None:
            session = {
                "session_id": get(answer, "session_id", 0),
                "session_epoch": session["session_epoch"] + 1,
            }


def topic_life(words: Words) -> Talk:
    """Create a topic, grow it, configure it, truncate it, delete it."""
    rng = words.rng
    name = rng.choice(TOPICS)
    topic = {"name": name, "topic": name}
    creating = {
        **topic,
        "num_partitions": rng.choice((1, 2, -1)),
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    yield 19, {"topics": [creating], "validate_only": False}
    for _ in range(rng.randrange(5)):
        api_key = rng.choice((0, 0, 1, 2, 3, 21, 23, 32, 33, 44, 37, 35, 75))
        yield api_key, {"topics": [topic]} if api_key not in (32, 33, 44) else {}
    if rng.random() < 0.3:
        yield 20, {"topics": [{"name": name, "topic_id": None}], "topic_names": [name]}


TALKS: tuple[Callable[[Words], Talk], ...] = (
    classic_member,
    consumer_member,
    share_member,
    transaction,
    fetch_session,
    topic_life,
)


def noise(words: Words, keys: list[int]) -> Talk:
    """Say anything."""
    rng: random.Random = words.rng
    for _ in range(rng.choice((1, 2, 5, 20))):
        yield rng.choice(keys), {}
