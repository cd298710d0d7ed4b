"""A transactional id under test, and the requests of cases about it.

Producer ids differ from run to run, so cases name them by the order in which they were given: `p0
e1` is the first producer id with epoch 1.

    producer = Transactional(world)
    assert producer.init() == "p0 e0"
    assert producer.add(topic) == OK
    assert producer.write(topic, 3) == OK
    assert producer.end(commit=True) == OK
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from headrace.protocol.api import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.protocol.errors import ErrorCode
from tests.conformance.world import COORDINATOR_IS_COMING, OK, PATIENCE_S, Topic, World, outcome
from tests.support import unique, wait_until
from tests.wire_client import batch, decode, request_frame

ASK_AGAIN = COORDINATOR_IS_COMING | {ErrorCode.CONCURRENT_TRANSACTIONS}
NO_ONE = (-1, -1)
PIPELINED = 100
Who = tuple[int, int]
"""Producer id and epoch."""


class Transactional:
    """A transactional id, and the producer id and epoch that it last received."""

    def __init__(self, world: World, transactional_id: str | None = None) -> None:
        self.world = world
        self.id = unique("transactions") if transactional_id is None else transactional_id
        self.who: Who = NO_ONE
        self.sequences: dict[tuple[Who, str], int] = {}
        self._producer_ids: list[int] = []
        if self.id:
            assert world.find_coordinator(self.id, 1)[0] == OK

    def named(self, producer_id: int, epoch: int) -> str:
        """Return a producer as `p0 e1`, or `-1 -1` for none."""
        if producer_id < 0:
            return f"{producer_id} {epoch}"
        if producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return f"p{self._producer_ids.index(producer_id)} e{epoch}"

    def other(self, epoch: int, producer: int = 0) -> Who:
        """Return a known producer id with any epoch."""
        return self._producer_ids[producer], epoch

    def _ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request of this transactional id, again while a transaction is being ended."""
        fields = {"transactional_id": self.id, **fields}
        return self.world.ask(api_key, version, again=ASK_AGAIN, **fields)

    # --- who may write ---

    def init(
        self, expected: Who = NO_ONE, *, version: int = 4, timeout_ms: int = 60_000, **more: Any
    ) -> str:
        """Send InitProducerId; return the new producer, or the error."""
        made = self._ask(
            22,
            version,
            transaction_timeout=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
            **more,
        )
        if made.error_code:
            return outcome(made.error_code)
        self.who = made.producer_id, made.producer_epoch
        return self.named(*self.who)

    def use_up_epochs(self, last: int) -> None:
        """Send InitProducerId until the epoch is this one, many requests at a time."""
        connection = self.world.connection
        while self.who[1] < last:
            requests = min(last - self.who[1], PIPELINED)
            fields = {"transactional_id": self.id, "transaction_timeout": 60_000}
            frames = [request_frame(22, 4, number, **fields) for number in range(requests)]
            connection.send(b"".join(frames))
            answers = [connection.receive() for _ in frames]
            made = decode(22, 4, answers[-1])
            assert made.error_code == 0, made
            self.who = made.producer_id, made.producer_epoch

    # --- what takes part ---

    def add(
        self,
        *topics: Topic | tuple[str, Sequence[int]],
        who: Who | None = None,
        version: int = 3,
        verify: bool = False,
    ) -> str:
        """Send AddPartitionsToTxn; return the error, or one per partition where they differ."""
        who = who or self.who
        asked: list[dict[str, Any]] = []
        for one in topics:
            name, partitions = (one.name, [0]) if isinstance(one, Topic) else one
            asked.append({"name": name, "partitions": partitions})
        if version <= 3:
            answer = self._ask(
                24,
                version,
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=who[0],
                v3_and_below_producer_epoch=who[1],
                v3_and_below_topics=asked,
            )
            results = answer.results_by_topic_v3_and_below
        else:
            transaction = {
                "transactional_id": self.id,
                "producer_id": who[0],
                "producer_epoch": who[1],
                "verify_only": verify,
                "topics": asked,
            }
            answer = self._ask(24, version, transactions=[transaction])
            if answer.error_code:
                return "all: " + outcome(answer.error_code)
            results = answer.results_by_transaction[0].topic_results
        codes = {
            (topic.name, one.partition_index): outcome(one.partition_error_code)
            for topic in results
            for one in topic.results_by_partition
        }
        told = [codes[one["name"], index] for one in asked for index in one["partitions"]]
        return told[0] if len(set(told)) == 1 else ", ".join(told)

    def add_group(self, group_id: str, who: Who | None = None, version: int = 3) -> str:
        """Send AddOffsetsToTxn; return the error."""
        producer_id, epoch = who or self.who
        answer = self._ask(
            25,
            version,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )
        return outcome(answer.error_code)

    def write(
        self,
        topic: Topic,
        records: int = 1,
        *,
        who: Who | None = None,
        version: int = 11,
        sequence: int | None = None,
        transactional: bool = True,
        transactional_id: str | None = "",
    ) -> str:
        """Produce one batch; return the error. Its sequence follows the last one written."""
        who = who or self.who
        base = self.sequences.get((who, topic.name), 0) if sequence is None else sequence
        data = batch(
            [b"v"] * records,
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=base,
            transactional=transactional,
            timestamp_ms=time.time_ns() // 1_000_000,
        )
        answer = self._ask(
            0,
            version,
            transactional_id=self.id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": topic.name, "partition_data": [{"index": 0, "records": data}]}],
        )
        told = outcome(answer.responses[0].partition_responses[0].error_code)
        if told == OK:
            self.sequences[who, topic.name] = base + records
        return told

    def commit_offset(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        who: Who | None = None,
        version: int = 3,
        generation_id: int = -1,
        member_id: str = "",
        metadata: str | None = "",
        instance_id: str | None = None,
    ) -> str:
        """Send TxnOffsetCommit; return the error, or one for each partition where they differ."""
        producer_id, epoch = who or self.who
        topics: dict[str, list[dict[str, Any]]] = {}
        for (name, index), offset in offsets.items():
            topics.setdefault(name, []).append(
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_metadata": metadata,
                    "committed_leader_epoch": -1,
                }
            )
        ids = self._topic_ids(topics) if version >= 6 else dict.fromkeys(topics)
        names = {topic_id: name for name, topic_id in ids.items()}
        answer = self._ask(
            28,
            version,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                {"name": name, "topic_id": ids[name], "partitions": parts}
                for name, parts in topics.items()
            ],
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        codes = {
            (names[t.topic_id] if version >= 6 else t.name, one.partition_index): outcome(
                one.error_code
            )
            for t in answer.topics
            for one in t.partitions
        }
        told = [codes[one] for one in offsets]
        return told[0] if len(set(told)) == 1 else ", ".join(told)

    def _topic_ids(self, names: Iterable[str]) -> dict[str, UUID]:
        """Return the ids of topics, and unknown ones for those that do not exist."""
        topics = [{"name": name, "topic_id": None} for name in names]
        listed = self.world.ask(3, 12, topics=topics, allow_auto_topic_creation=False)
        return {one.name: one.topic_id or uuid4() for one in listed.topics}

    # --- how it ends ---

    def end(self, *, commit: bool, who: Who | None = None, version: int = 3) -> str:
        """Send EndTxn; return OK, from version 5 on the next producer, or the error."""
        producer_id, epoch = who or self.who
        answer = self._ask(
            26,
            version,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        if version < 5 or answer.error_code:
            return outcome(answer.error_code)
        self.who = answer.producer_id, answer.producer_epoch
        return self.named(*self.who)

    # --- what an administrator sees ---

    def described(self) -> Described:
        """Return the answer to DescribeTransactions once no transaction is being ended."""
        return describe_transactions(self.world, self.id)[0]

    @property
    def state(self) -> str:
        """The state as `Ongoing p0 e0`, or the error."""
        one = self.described()
        if one.error_code:
            return outcome(one.error_code)
        return f"{one.state} {self.named(one.producer_id, one.producer_epoch)}"

    def wait_for(self, state: str) -> None:
        """Wait until :attr:`state` is this."""
        wait_until(lambda: self.state == state, PATIENCE_S, state)


@dataclass(frozen=True, slots=True)
class Described:
    """The answer of DescribeTransactions about one transactional id."""

    error_code: int
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    topics: dict[str, list[int]]

    @classmethod
    def of(cls, state: DescribeTransactionsResponse.TransactionState) -> Described:
        """Return the answer of a response."""
        return cls(
            state.error_code,
            state.transactional_id,
            state.transaction_state,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
            state.producer_id,
            state.producer_epoch,
            {topic.topic: sorted(topic.partitions) for topic in state.topics},
        )


def describe_transactions(world: World, *transactional_ids: str) -> list[Described]:
    """Return the answers to DescribeTransactions once no transaction is being ended.

    kio cannot read the answer: it takes the start of a transaction for a time, and fails at -1.
    """
    request = DescribeTransactionsRequest(transactional_ids).encoded(0)

    def answered() -> list[Described] | None:
        data = world.connection.call(65, 0, b"\0" + request)
        response = DescribeTransactionsResponse.read(0, data, 1)  # after the tags of the header
        told = [Described.of(state) for state in response.transaction_states]
        coming = any(
            one.state.startswith("Prepare") or one.error_code in COORDINATOR_IS_COMING
            for one in told
        )
        return None if coming else told

    return wait_until(answered, PATIENCE_S, "transactions to end")


def list_transactions(
    world: World,
    version: int = 2,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> Any:
    """Send ListTransactions; return the response."""
    return world.ask(
        66,
        version,
        state_filters=states,
        producer_id_filters=producer_ids,
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


def describe_producers(topic: Topic, partition: int = 0) -> Any:
    """Return the answer to DescribeProducers for one partition."""
    asked = [{"name": topic.name, "partition_indexes": [partition]}]
    ((one,),) = (found.partitions for found in topic.world.ask(61, 0, topics=asked).topics)
    return one


def fetch(
    topic: Topic,
    offset: int = 0,
    *,
    committed: bool = True,
    version: int = 12,
    partition_max_bytes: int = 1 << 20,
) -> Any:
    """Fetch without waiting; return the answer about the partition."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
    response = topic.world.ask(
        1,
        version,
        max_bytes=1 << 25,
        isolation_level=int(committed),
        topics=[{"topic": topic.name, "partitions": [partition]}],
    )
    ((one,),) = (found.partitions for found in response.responses)
    assert one.error_code == 0, one
    return one
