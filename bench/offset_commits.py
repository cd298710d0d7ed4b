"""The throughput of offset commits, and the latency of fetching offsets, without group members.

    python -m bench.offset_commits HOST:PORT

Each group has a connection and one OffsetCommit (version 9, one partition) in flight: the next is
sent after the response. Requests are built before the clock starts; one loop sends them and checks
each response. OffsetFetch (version 9) asks for all offsets of a group with 10,000.
"""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.protocol.errors import ErrorCode
from tests.support import unique
from tests.wire_client import Connection, receive_frame

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
VERSION = 9
COMMITS, PARTITIONS, FETCHES = 10_000, 10_000, 20


@contextmanager
def create(bootstrap: str, partitions: int) -> Iterator[str]:
    """Yield a topic, and delete it afterwards. Kafka creates fewer than 10,000 partitions at a
    time.
    """
    client, name, step = AdminClient({"bootstrap.servers": bootstrap}), unique("bench"), 5_000
    client.create_topics([NewTopic(name, min(partitions, step), 1)])[name].result(300)
    for total in range(2 * step, partitions + 1, step):
        client.create_partitions([NewPartitions(name, total)])[name].result(300)
    yield name
    client.delete_topics([name])[name].result(300)


def commit(
    connection: Connection, group_id: str, topic: str, positions: Sequence[int] = (1,)
) -> None:
    """Commit an offset in each of the first partitions of a topic; retry while the coordinator
    loads.
    """
    offsets = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index, offset in enumerate(positions)
    ]
    while True:
        answer = connection.ask(
            OFFSET_COMMIT,
            VERSION,
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": topic, "partitions": offsets}],
        )
        codes = {one.error_code for one in answer.topics[0].partitions}
        if codes == {ErrorCode.NONE}:
            return
        # which makes there be one
        connection.ask(FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[group_id])
        time.sleep(0.1)


class Recorded(Connection):
    """A connection that records its last frame and the response."""

    frame = answer = b""

    def send(self, data: bytes) -> None:
        self.frame = data
        super().send(data)

    def receive(self) -> bytes | None:
        received = super().receive()
        self.answer = received or b""
        return received


@contextmanager
def connections(bootstrap: str, groups: int) -> Iterator[list[Recorded]]:
    opened = [Recorded(bootstrap, timeout_s=120) for _ in range(groups)]
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def commits_per_second(bootstrap: str, topic: str, groups: int, commits: int = COMMITS) -> float:
    """Return the commits per second of several groups at a time."""
    with connections(bootstrap, groups) as opened, selectors.DefaultSelector() as selector:
        for number, one in enumerate(opened):
            commit(one, unique(f"bench-{number}"), topic)
            selector.register(one.socket, selectors.EVENT_READ, one)
        started, sent, answered = time.perf_counter(), 0, 0
        for one in opened:
            one.socket.sendall(one.frame)
            sent += 1
        while answered < sent:
            for key, _ in selector.select():
                one = key.data
                received = receive_frame(one.socket)
                assert received == one.answer, received
                answered += 1
                if sent < commits:
                    one.socket.sendall(one.frame)
                    sent += 1
        return sent / (time.perf_counter() - started)


def fetch_ms(
    bootstrap: str, topic: str, partitions: int = PARTITIONS, fetches: int = FETCHES
) -> float:
    """Return the median of the milliseconds from an OffsetFetch of a whole group to the last byte
    of its response.
    """
    with connections(bootstrap, 1) as (connection,):
        group_id = unique("bench")
        commit(connection, group_id, topic, [1] * partitions)
        group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
        answer = connection.ask(OFFSET_FETCH, VERSION, groups=[group], require_stable=True)
        assert sum(len(one.partitions) for one in answer.groups[0].topics) == partitions
        times = []
        for _ in range(fetches):
            started = time.perf_counter()
            connection.socket.sendall(connection.frame)
            assert receive_frame(connection.socket) is not None
            times.append(1000 * (time.perf_counter() - started))
        return sorted(times)[len(times) // 2]


def main() -> None:
    (bootstrap,) = sys.argv[1:]
    for groups in (1, 500):
        with create(bootstrap, 1) as name:
            print(f"{groups} groups: {commits_per_second(bootstrap, name, groups):,.0f} commits/s")
    with create(bootstrap, PARTITIONS) as name:
        print(f"OffsetFetch of {PARTITIONS:,} offsets: {fetch_ms(bootstrap, name):.1f} ms")


if __name__ == "__main__":
    main()
