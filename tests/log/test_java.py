"""Apache Kafka's DumpLogSegments reads the files of a log and finds no mistake."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from headrace.protocol.record_batch import build
from tests.log.disk import NOW, Disk, put
from tests.peer import VERSION, run_tool

LIBS = Path(os.environ.get("KAFKA_LIBS") or Path.home() / ".cache" / f"kafka-{VERSION}")

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.skipif(
        not list(LIBS.glob("kafka-tools-*.jar")),
        reason=f"no Apache Kafka jars in {LIBS} (or set KAFKA_LIBS)",
    ),
]


def dump(*arguments: str) -> str:
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0 and "Exception" not in done.stderr, (
        done.stdout[-2000:] + done.stderr
    )
    return done.stdout


def test_dump_log_segments(disk: Disk):
    log = disk.log(segment_bytes=20_000)
    for n in range(400):
        pairs = [(b"key-%d" % n, b"%d-%d" % (n, m) + bytes(n % 300)) for m in range(3)]
        put(
            log,
            build(
                pairs,
                timestamp_ms=0,
                timestamps_ms=[NOW + n, NOW + n - 5, NOW + (n * 7) % 400],
                codec=n % 5,
                headers=[[("h", b"%d" % n)]] * 3,
                producer_id=9,
                producer_epoch=1,
                base_sequence=3 * n,
            ),
        )
    log.config = disk.log(partition=1, message_timestamp_type="LogAppendTime").config
    for n in range(50):
        put(log, build([(b"k", bytes(200))], timestamp_ms=1), NOW + 1000 + n)
    active = f"t-0/{Path(log._segments[-1].path('.log')).name}"
    disk.crash(lambda path: os.truncate(path / active, os.path.getsize(path / active) - 5))
    end = disk.log().end_offset
    disk.stop()

    kinds = ("log", "index", "timeindex", "snapshot")
    files = {suffix: sorted(map(str, (disk.path / "t-0").glob(f"*.{suffix}"))) for suffix in kinds}
    assert len(files["log"]) > 2
    text = dump("--deep-iteration", "--print-data-log", "--files", ",".join(files["log"]))
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", text, re.M)] == list(
        range(end)
    )
    assert "isvalid: false" not in text and text.count("isvalid: true") == len(
        re.findall(r"^baseOffset: ", text, re.M)
    )
    assert {"none", "gzip", "snappy", "lz4", "zstd"} == set(
        re.findall(r"compresscodec: (\w+)", text)
    )
    assert set(re.findall(r"partitionLeaderEpoch: (\S+)", text)) == {"0"}

    indexes = ",".join(files["index"] + files["timeindex"])
    text = dump("--index-sanity-check", "--files", indexes)
    assert text.count("passed sanity check") == 2 * len(files["log"])
    text = dump("--verify-index-only", "--files", indexes)
    assert not re.search(r"mismatch|not found|out of order", text, re.I), text
    assert "producerId: 9 producerEpoch: 1" in dump("--files", ",".join(files["snapshot"]))
    disk.start()
