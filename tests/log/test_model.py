"""Random lives of a log against a list: it always reads as the list does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import build, headers, records
from tests.log.disk import NOW, Disk, apply_retention, delete_records, first_at_or_after, put

PRODUCER = 42


class LogAgainstList(RuleBasedStateMachine):
    """A log against a list: ``model[n]`` is ``(key, value, timestamp)`` of the record at n."""

    @initialize(
        segment_bytes=st.sampled_from([600, 1500, 100_000]),
        index_interval_bytes=st.sampled_from([0, 200, 4096]),
        retention_bytes=st.sampled_from([-1, 1000, 5000]),
    )
    def begin(self, **config: int) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.config: dict[str, Any] = {"retention_ms": -1, **config}
        self.disk = Disk(Path(self.temporary.name), file_limit=2)
        self.model: list[tuple[bytes, bytes, int]] = []
        self.start = 0
        self.sequence = 0
        self.last_sent: list[tuple[bytes, int]] = []

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.stop()
            self.temporary.cleanup()

    @property
    def log(self):
        return self.disk.log(**self.config)

    @rule(
        sizes=st.lists(st.integers(0, 90), min_size=1, max_size=4),
        ages=st.lists(st.integers(0, 50), min_size=4, max_size=4),
        codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        idempotent=st.booleans(),
    )
    def append(self, sizes, ages, codec, idempotent):
        base = len(self.model)
        added = [(b"%d" % (base + n), bytes(size), NOW - ages[n]) for n, size in enumerate(sizes)]
        producer = (
            {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": self.sequence}
            if idempotent
            else {}
        )
        data = build(
            [(key, value) for key, value, _ in added],
            timestamp_ms=0,
            timestamps_ms=[time for _, _, time in added],
            codec=codec,
            **producer,
        )
        assert put(self.log, data).base_offset == base
        self.model += added
        if idempotent:
            self.sequence += len(added)
            self.last_sent = [*self.last_sent[-4:], (data, base)]

    @precondition(lambda self: self.last_sent)
    @rule(which=st.integers(0, 4))
    def send_again(self, which):
        data, base = self.last_sent[which % len(self.last_sent)]
        appended = put(self.log, data)
        assert appended.duplicate and appended.base_offset == base

    @precondition(lambda self: self.model)
    @rule(data=st.data(), max_bytes=st.integers(0, 3000), minimum_one=st.booleans())
    def read(self, data, max_bytes, minimum_one):
        offset = data.draw(st.integers(0, len(self.model)))
        up_to = data.draw(st.none() | st.integers(0, len(self.model)))
        answer = self.log.find(
            offset, max_bytes, minimum_one=minimum_one, up_to=up_to, held_bytes=None
        )
        if offset < self.start:
            assert isinstance(answer, Refusal) and answer.code == ErrorCode.OFFSET_OUT_OF_RANGE
            return
        assert isinstance(answer, bytes)
        batches = list(headers(answer))
        assert sum(header.size_bytes for _, header in batches) == len(answer)
        assert len(answer) <= max_bytes or (minimum_one and len(batches) == 1)
        if batches:
            assert batches[0][1].base_offset <= offset <= batches[0][1].last_offset
            assert up_to is None or batches[-1][1].last_offset < up_to
        elif minimum_one and up_to is None:
            assert offset == len(self.model)
        expected = batches[0][1].base_offset if batches else 0
        for position, _ in batches:
            for record in records(memoryview(answer)[position:]):
                assert record.offset == expected
                assert (record.key, record.value, record.timestamp_ms) == self.model[record.offset]
                expected += 1

    @rule(age=st.integers(-1, 52))
    def look_up_by_time(self, age):
        wanted = NOW - age
        live = list(enumerate(self.model))[self.start :]
        expected = next(((offset, time) for offset, (_, _, time) in live if time >= wanted), None)
        assert first_at_or_after(self.log, wanted) == expected

    @rule(data=st.data())
    def delete_records(self, data):
        before = data.draw(st.integers(0, len(self.model)))
        self.start = max(self.start, before)
        assert delete_records(self.log, before) == self.start

    @rule()
    def retain(self):
        log = self.log
        apply_retention(log, NOW)
        assert log.log_start_offset >= self.start
        self.start = log.log_start_offset
        if log.config.retention_bytes >= 0:
            size = log.size_bytes()
            assert size < log.config.retention_bytes + log.config.segment_bytes

    @rule()
    def restart(self):
        self.disk.stop()
        self.disk.start()

    @rule(partition=st.integers(1, 3))
    def crowd_out(self, partition):
        """Use another log, which takes the file handle."""
        put(self.disk.log(partition=partition), build([(b"k", b"v")], timestamp_ms=NOW))

    @rule(torn=st.booleans())
    def crash(self, torn):
        """Crash as after ``kill -9``; perhaps with a batch half written, not acknowledged."""

        def spoil(path: Path) -> None:
            logs = sorted((path / "t-0").glob("*.log"))
            if torn and logs:
                with open(logs[-1], "ab") as file:
                    file.write(
                        build(
                            [(b"lost", bytes(80))], timestamp_ms=NOW, base_offset=len(self.model)
                        )[:-1]
                    )

        self.disk.crash(spoil)

    @invariant()
    def ends_agree(self):
        if hasattr(self, "disk"):
            assert (self.log.log_start_offset, self.log.end_offset) == (self.start, len(self.model))


LogAgainstList.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
