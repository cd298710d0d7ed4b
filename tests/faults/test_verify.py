"""``headrace verify``: all batches of a data directory, with and without a running broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.log.verify import Verified, log_files, verify_file
from headrace.protocol.record_batch import headers
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.support import COMMON_CONFIGS, HeadraceProcess, wait_until
from tests.wire_client import batch, connection

pytestmark = pytest.mark.broker
BATCHES = 20


def verify(data_dir: Path | None, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", "verify", "--data-dir", str(data_dir), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=HeadraceProcess.environment(),
    )


@pytest.fixture
def server(tmp_path):
    with HeadraceProcess(tmp_path / "data", COMMON_CONFIGS) as server:
        create_topic(server.bootstrap_servers, "orders", partitions=2)
        with connection(server.bootstrap_servers) as client:
            for n in range(BATCHES):
                assert client.produce("orders", batch([b"%d" % n, b"b", b"c"]), n % 2)[0] == 0
        yield server


def log_of(server: HeadraceProcess, partition: int) -> Path:
    assert server.data_dir is not None
    return server.data_dir / f"orders-{partition}" / f"{0:020}.log"


def spoil(path: Path, number: int, at: int) -> int:
    """Flip a bit of a batch, and return the position of the batch."""
    data = bytearray(path.read_bytes())
    position = [position for position, _ in headers(bytes(data))][number]
    data[position + at] ^= 4
    path.write_bytes(data)
    return position


def test_a_sound_directory(server):
    server.stop()
    done = verify(server.data_dir, "-o", "jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["record_count"], found["batch_count"]) == (3 * BATCHES, BATCHES)
    assert found["problems"] == []
    assert "no problems" in verify(server.data_dir).stdout


def test_what_is_not_there_is_not_verified(server: HeadraceProcess, tmp_path: Path) -> None:
    (tmp_path / "other-0").mkdir()
    for directory, options, complaint in (
        (server.data_dir, ["--topic", "ordrs"], "has no partition of topic 'ordrs'"),
        (tmp_path, [], "is not a data directory"),
    ):
        done = verify(directory, *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"headrace verify: {directory} {complaint}\n"


def test_any_flipped_bit_of_a_batch_is_found(server):
    """All but the leader epoch, which the checksum leaves out and nothing depends on."""
    server.stop()
    path = log_of(server, 0)
    whole = path.read_bytes()
    for number in (0, 4, BATCHES // 2 - 1):
        for at in {*range(72)} - {12, 13, 14, 15}:
            position = spoil(path, number, at)
            found = [
                problem
                for file in log_files(str(server.data_dir), ["orders-0"])
                for problem in verify_file(file, is_live=False, verified=Verified())
            ]
            assert [(one.path, one.position, one.first_offset) for one in found] == [
                (str(path), position, 3 * number)
            ], (number, at)
            path.write_bytes(whole)
    position = spoil(path, 4, 70)
    done = verify(server.data_dir, "--topic", "orders", "-o", "jsonl")
    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert (problem["path"], problem["position"]) == (str(path), position)
    assert str(path) in verify(server.data_dir).stdout


def test_a_file_that_cannot_be_read_hides_no_damage_of_others(server):
    server.stop()
    unreadable = log_of(server, 0)
    unreadable.unlink()
    unreadable.mkdir()
    spoil(log_of(server, 1), 3, at=-1)
    done = verify(server.data_dir, "-o", "jsonl")
    assert done.returncode == 1, done.stderr
    first, second = json.loads(done.stdout)["problems"]
    assert (first["path"], first["position"], first["first_offset"]) == (str(unreadable), 0, 0)
    assert first["problem"].endswith("it cannot be read: Is a directory")
    assert second["path"] == str(log_of(server, 1))


def test_a_file_that_a_recovery_has_kept_is_named(server):
    server.kill()
    spoil(log_of(server, 0), 4, 70)
    server.start()
    with connection(server.bootstrap_servers) as client:
        assert client.produce("orders", batch([b"x"]), 0) == (0, 12)
    server.stop()
    done = verify(server.data_dir)
    name = f"{log_of(server, 0)}.damaged"
    assert done.returncode == 0 and name in done.stdout
    assert json.loads(verify(server.data_dir, "-o", "jsonl").stdout)["kept"] == [name]


def test_beside_a_broker_that_is_written_to(server):
    ended = threading.Event()

    def write() -> None:
        with connection(server.bootstrap_servers) as client:
            while not ended.is_set():
                client.produce("orders", batch([os.urandom(5000)]), 0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            done = verify(server.data_dir)
            assert done.returncode == 0, done.stdout + done.stderr
        position = spoil(log_of(server, 1), 3, 70)
        done = verify(server.data_dir)
        assert done.returncode == 1
        assert f"position {position}, offset 9" in done.stdout
    finally:
        ended.set()
        writer.join()


def test_a_running_broker_names_damaged_batches(server):
    server.stop()
    position = spoil(log_of(server, 1), 3, 70)
    server.output.clear()
    server.start()

    def told() -> list[str]:
        return [line for line in server.output if "is damaged at position" in line]

    wait_until(told, PATIENCE_S, "the damage")
    (line,) = told()
    assert f"{log_of(server, 1)} is damaged at position {position}, offset 9 to 11" in line
    assert server.stop() == 0


def test_no_directory_is_a_failure(tmp_path):
    done = verify(tmp_path / "none")
    assert done.returncode == 1 and "is not a directory" in done.stderr
