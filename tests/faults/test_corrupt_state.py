"""Damage to the internal topics: a torn tail is cut, a record that cannot be read is skipped, and
a damaged batch stops the start and says what can be done.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.protocol import record_batch
from headrace.share.records import SharePartitionKey, ShareUpdate, encode
from tests.clients.confluent import PATIENCE_S
from tests.conformance.classic import ClassicGroup
from tests.conformance.world import OK, ShareState, World
from tests.support import HeadraceProcess
from tests.wire_client import connection

pytestmark = pytest.mark.broker

CONFIGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
GROUP = "g"
WRITES = 10

Spoil = Callable[[bytearray, list[int]], None]


class Ground:
    """A broker that is stopped or killed after some writes, so that its files can be damaged."""

    def __init__(self, path: Path) -> None:
        self.server = HeadraceProcess(path / "data", CONFIGS)
        self.topic_id = None

    def begin(self) -> None:
        """Write the start offsets 1 to 10 of one share-partition one after the other, and a
        committed offset.
        """
        self.server.start()
        with World(self.server.bootstrap_servers, "headrace") as world:
            self.topic_id = world.connection.create_topic("t", 1)
            state = ShareState(world, GROUP, self.topic_id)
            classic = ClassicGroup(world, GROUP + "-classic")
            assert state.initialize() == OK
            for start in range(1, WRITES + 1):
                assert state.write(start_offset=start) == OK
                assert classic.commit("t", {0: start}) == {0: OK}

    @property
    def key(self) -> SharePartitionKey:
        return SharePartitionKey(GROUP, self.topic_id, 0)

    def segment(self, topic: str = "__share_group_state") -> Path:
        (path,) = (self.server.data_dir or Path()).glob(f"{topic}-0/*.log")
        return path

    def spoil(self, spoil: Spoil, topic: str = "__share_group_state") -> None:
        """Change the bytes of a segment with ``spoil``, which receives them and the positions of
        its batches.
        """
        path = self.segment(topic)
        data = bytearray(path.read_bytes())
        spoil(data, [position for position, _ in record_batch.headers(bytes(data))])
        path.write_bytes(data)

    def start_offset(self) -> int:
        """Return the start offset of the share-partition that the restarted broker knows."""
        self.server.output.clear()
        self.server.start()
        with World(self.server.bootstrap_servers, "headrace") as world:
            return int(ShareState(world, GROUP, self.topic_id).summary_fields.start_offset)

    def refusal(self) -> str:
        """Return the broker's error when it does not start."""
        self.server.output.clear()
        process = self.server.spawn()
        assert process.wait(PATIENCE_S) == 1
        assert not any("Traceback" in line for line in self.server.output), self.server.output
        return self.server.output[-1]


@pytest.fixture
def ground(tmp_path):
    made = Ground(tmp_path)
    made.begin()
    yield made
    made.server.kill()


def half_a_batch(data, positions):
    data += data[positions[-1] :][:70]


def garbage(data, positions):
    data += b"\xab" * 300


def zeros(data, positions):
    data += bytes(4096)


@pytest.mark.parametrize("end", [half_a_batch, garbage, zeros])
def test_a_torn_tail_is_cut_and_reported(ground, end):
    ground.server.kill()
    ground.spoil(end)
    assert ground.start_offset() == WRITES
    assert [
        line for line in ground.server.output if "Cut" in line and "__share_group_state-0" in line
    ]


def test_a_wrong_last_record_is_cut_and_what_comes_later_is_kept(ground):
    ground.server.kill()

    def last_byte(data, positions):
        data[-1] ^= 1

    ground.spoil(last_byte)
    assert ground.start_offset() == WRITES - 1
    with World(ground.server.bootstrap_servers, "headrace") as world:
        assert ShareState(world, GROUP, ground.topic_id).write(start_offset=77) == OK
    ground.server.kill()
    assert ground.start_offset() == 77


def a_value(data, positions):
    data[positions[5] - 1] ^= 1  # the last byte of the batch at offset 4


def a_length(data, positions):
    data[positions[4] + 8] ^= 1


def a_magic(data, positions):
    data[positions[4] + 16] ^= 1


def a_hole(data, positions):
    data[positions[4] : positions[4] + 30] = bytes(30)


@pytest.mark.parametrize(
    ("damage", "stop", "topic"),
    [
        (a_value, "cleanly", "__share_group_state"),
        (a_value, "by kill -9", "__share_group_state"),
        (a_length, "cleanly", "__share_group_state"),
        (a_length, "by kill -9", "__share_group_state"),
        (a_magic, "by kill -9", "__share_group_state"),
        (a_hole, "cleanly", "__share_group_state"),
        (a_hole, "by kill -9", "__consumer_offsets"),
    ],
)
def test_damage_in_the_middle_stops_the_start(ground, damage, stop, topic):
    ground.server.stop() if stop == "cleanly" else ground.server.kill()
    ground.spoil(damage, topic)
    for _ in range(2):  # nothing was cut by the attempt
        told = ground.refusal()
        assert str(ground.segment(topic)) in told
        assert "damaged at offset 4:" in told
    advice = re.search(r"truncate -s \d+ \S+\.log", told)
    assert advice is not None, told
    subprocess.run(advice[0].split(), check=True)
    assert ground.start_offset() == (3 if topic == "__share_group_state" else WRITES)


def appended(key, value):
    """Return a function that appends a batch with the right checksum and the next offset, and any
    records.
    """

    def spoil(data, positions):
        data += record_batch.build([(key, value)], timestamp_ms=0, base_offset=len(positions))

    return spoil


@pytest.mark.parametrize("stop", ["cleanly", "by kill -9"])
def test_a_record_that_cannot_be_decoded_is_skipped(ground, stop):
    ground.server.stop() if stop == "cleanly" else ground.server.kill()
    key, value = encode(ShareUpdate(ground.key, 0, 0, 5))
    ground.spoil(appended(key, b"\0\0\0"))
    ground.spoil(appended(key, value))
    assert ground.start_offset() == 5
    (told,) = [line for line in ground.server.output if "skipped" in line]
    assert str(ground.segment()) in told
    assert f"offset {WRITES + 1} " in told
    assert key.hex() in told
    assert "not a share state record" in told


def test_a_batch_that_cannot_be_opened_is_skipped(ground):
    ground.server.stop()

    def spoil(data, positions):
        whole = bytearray(
            record_batch.build([(b"k", b"v")], timestamp_ms=0, base_offset=len(positions))
        )
        header = record_batch.header_at(whole)
        gzip = 1
        body = whole[record_batch.HEADER_BYTES :]
        data += record_batch.seal(header._replace(attributes=gzip), body) + body

    ground.spoil(spoil)
    assert ground.start_offset() == WRITES
    (told,) = [line for line in ground.server.output if "skipped" in line]
    assert f"{ground.segment()} from offset {WRITES + 1} on" in told


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_garbage_of_another_coordinator_is_skipped(ground, topic):
    with connection(ground.server.bootstrap_servers) as client:
        client.ask(22, 4, transactional_id="t", transaction_timeout=60_000)
    ground.server.stop()
    keys = {"__consumer_offsets": b"\0\x02\0\x01g", "__transaction_state": b"\0\0\0\x01t"}
    ground.spoil(appended(keys[topic], b"\0"), topic)
    assert ground.start_offset() == WRITES
    assert [line for line in ground.server.output if "skipped" in line and topic in line]


def test_a_record_of_another_type_is_passed_over(ground):
    ground.server.stop()
    key, value = encode(ShareUpdate(ground.key, 0, 0, 5))
    ground.spoil(appended(b"\0\x09" + key[2:], value))
    ground.spoil(appended(key, value))
    assert ground.start_offset() == 5


def test_a_missing_segment_stops_the_start(ground):
    ground.server.stop()
    path = ground.segment()
    data = path.read_bytes()
    positions = [position for position, _ in record_batch.headers(data)]
    path.write_bytes(data[: positions[4]])
    (path.parent / f"{6:020}.log").write_bytes(data[positions[6] :])
    told = ground.refusal()
    assert "has offset 6 where 4 should come" in told


def test_an_embedded_broker_raises_and_lets_the_directory_go(ground):
    ground.server.stop()
    ground.spoil(a_value)
    broker = headrace.Broker(ground.server.data_dir, CONFIGS)
    for _ in range(2):
        with pytest.raises(headrace.CorruptLog, match="damaged at offset 4:"):
            broker.start()
