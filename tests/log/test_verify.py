"""Verification of a log that is used meanwhile."""

from __future__ import annotations

import os
import threading
from typing import Any

from headrace.log.cleaner import cleanable
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.log.verify import Verified, log_files, verify_file
from headrace.protocol.record_batch import build
from tests.log.disk import NOW, TOPIC_ID, Disk, batch, clean, put
from tests.log_configs import log_config

ROUNDS = 15
CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 400,
    "min_cleanable_dirty_ratio": 0.0,
}


def test_what_compaction_replaces_meanwhile_is_no_damage(tmp_path):
    home = LogDirectory(DataDirectory(tmp_path / "d", 16, sync=False))
    log = home.open("t", TOPIC_ID, 0, log_config(**CONFIG))
    ended, found, passes = threading.Event(), [], []

    def verify() -> None:
        while not ended.is_set():
            for file in log_files(str(tmp_path / "d"), ["t-0"]):
                found.extend(verify_file(file, is_live=True, verified=Verified()))
            passes.append(1)

    put(log, build([(b"k", b"v")], timestamp_ms=NOW))
    thread = threading.Thread(target=verify)
    thread.start()
    for number in range(ROUNDS):
        for n in range(30):  # each segment keeps a record in its middle
            key = b"%d %d" % (number % 3, n) if n % 3 == 1 else b"0"
            put(log, build([(key, bytes(40))], timestamp_ms=NOW))
        log.config = log_config(**{**CONFIG, "segment_bytes": 400 + 400 * (number % 4)})
        plan = cleanable(log, NOW)
        if plan is not None:
            clean(log, plan, NOW)
    ended.set()
    thread.join()
    home.close()
    assert passes and not found


def test_a_fifo_does_not_hold_a_verification(disk: Disk) -> None:
    put(disk.log(), batch(b"a"))
    os.mkfifo(disk.path / "t-0" / f"{1:020}.log")
    files = log_files(str(disk.path), ["t-0"])
    assert len(files) == 2
    for file in files:
        list(verify_file(file, is_live=False, verified=Verified()))
