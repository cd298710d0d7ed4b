"""The start of the coordinators: replay, recovery, timers."""

from __future__ import annotations

import gc

from headrace.log_lines import get_logger
from headrace.protocol.errors import StorageError

from .coordinators import Coordinators

log = get_logger("headrace.coordinators")


def start(coordinators: Coordinators) -> None:
    """Replay the internal topics, complete interrupted changes, and start sessions and timers.

    :raises CorruptLog: when a batch in the middle of an internal topic is damaged or missing
    """
    # Python must not search for cycles: a load creates millions of objects, and no cycle.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        coordinators.load()
    finally:
        if was_enabled:
            gc.enable()
    if coordinators.loaded_transactions is not None:
        coordinators.loaded_transactions.complete_prepared()
    groups = coordinators.loaded_groups
    try:
        if coordinators.loaded_share_state or (groups and groups.share.all()):
            from . import share_state_recovery  # imported only by brokers with share groups

            share_state_recovery.recover(coordinators)
    except StorageError as error:  # requests are served correctly without it
        log.error("cannot complete interrupted changes: %s; the next start will try again", error)
    if groups is not None:
        groups.loaded(coordinators.environment.clock.now_ms())
    coordinators.timer.schedule()
