"""Mistakes made in every coordinator and in the log on purpose: runs of the whole broker find each
of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from headrace.coordinators.transactions import Transactions
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.consumer.state import ConsumerState
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.heartbeats.group import HeartbeatGroup
from headrace.groups.offsets.committed import CommittedOffsets
from headrace.groups.records import OffsetCommit
from headrace.handlers import api_51_alter_user_scram_credentials
from headrace.log import checked_file, checksums, partition_log, producer_state, recovery
from headrace.log.aborted_transactions import AbortedTransactions
from headrace.log.compaction import LatestOffsets
from headrace.log.producer_state import ProducerState
from headrace.net import scram_users
from headrace.net.access_control import AccessControl
from headrace.net.client_quotas import Quotas
from headrace.protocol.checksum import crc32c
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import Acl
from headrace.security.scram import Credential, Mechanism
from headrace.share import acknowledgement
from headrace.share.acknowledgement import ACCEPT
from headrace.share.records import AVAILABLE
from headrace.topics import catalog
from headrace.topics.catalog import Catalog
from headrace.topics.flusher import Flusher
from headrace.transactions.transaction import TransactionCoordinator

from .forgetting import forget
from .run import find_failure
from .whole import flips

pytestmark = pytest.mark.slow

RUNS, STEPS = 40, 400
FIRST = {
    "snapshots_of_producers_are_believed": (20,),
    "offsets_of_aborted_transactions_are_taken": (11,),
    "users_are_stored_one_by_one": (9,),
    "quotas_are_stored_one_by_one": (135,),
    "anyone_may_commit": (17,),
    "acls_are_stored_one_by_one": (34,),
    "rows_of_the_catalog_are_believed": (15,),
}
"""Seeds that find what few seeds find: they are tried first."""
Patch = pytest.MonkeyPatch
MISTAKES: list[Callable[[Patch], None]] = []


def mistake(make: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MISTAKES.append(make)
    return make


# Of the log


@mistake
def writes_are_acknowledged_before_they_are_durable(patch: Patch) -> None:
    patch.setattr(Flusher, "pending_flush", lambda self: None)


@mistake
def torn_tails_are_not_cut(patch: Patch) -> None:
    patch.setattr(recovery, "_recover", lambda *arguments, **options: None)


@mistake
def doubled_batches_are_stored_twice(patch: Patch) -> None:
    patch.setattr(ProducerState, "check", lambda self, header: None)


@mistake
def retention_deletes_one_segment_too_many(patch: Patch) -> None:
    delete = partition_log.segments_to_delete

    def eager(segments: Any, *rest: Any) -> int:
        return min(delete(segments, *rest) + 1, len(segments) - 1)

    patch.setattr(partition_log, "segments_to_delete", eager)


@mistake
def compaction_takes_the_latest_value(patch: Patch) -> None:
    get = LatestOffsets.get

    def ahead(self: Any, key: bytes, default: int) -> int:
        found = get(self, key, default)
        return found if found == default else found + 1

    patch.setattr(LatestOffsets, "get", ahead)


# Of transactions


@mistake
def aborted_records_are_not_skipped(patch: Patch) -> None:
    patch.setattr(AbortedTransactions, "overlapping", lambda *arguments: [])


@mistake
def a_marker_is_lost(patch: Patch) -> None:
    write_marker = Transactions.write_marker

    def forgetful(self: Any, log: Any, *rest: Any) -> None:
        if log.partition != 1:
            write_marker(self, log, *rest)

    patch.setattr(Transactions, "write_marker", forgetful)


@mistake
def decisions_are_not_replayed_at_a_start(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "decode", lambda *arguments: None)


@mistake
def decisions_are_not_finished_at_a_start(patch: Patch) -> None:
    patch.setattr(Transactions, "complete_prepared", lambda self: None)


@mistake
def offsets_of_aborted_transactions_are_taken(patch: Patch) -> None:
    end = CommittedOffsets.end_transaction

    def careless(self: Any, producer_id: int, partition: int, *, commit: bool) -> None:
        end(self, producer_id, partition, commit=True)

    patch.setattr(CommittedOffsets, "end_transaction", careless)


# Of groups and their offsets


@mistake
def offsets_are_not_replayed_at_a_start(patch: Patch) -> None:
    forget(patch, GroupCoordinator, lambda record: isinstance(record, OffsetCommit))


@mistake
def groups_are_not_replayed_at_a_start(patch: Patch) -> None:
    forget(patch, GroupCoordinator, lambda record: not isinstance(record, OffsetCommit))


@mistake
def anyone_may_commit(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_commit", lambda *arguments: (ErrorCode.NONE, None))
    patch.setattr(HeartbeatGroup, "check_commit", lambda *arguments, **more: ErrorCode.NONE)


@mistake
def partitions_are_given_before_they_are_free(patch: Patch) -> None:
    patch.setattr(ConsumerState, "is_free", lambda self, topic_id, partition: True)


@mistake
def accepted_records_come_back(patch: Patch) -> None:
    patch.setitem(acknowledgement.FINISHED, ACCEPT, (AVAILABLE, None))


# Of the catalog


@mistake
def the_catalog_is_not_forced_to_disk(patch: Patch) -> None:
    prepare = Catalog._prepare

    def hasty(self: Any) -> None:
        prepare(self)
        self._database.execute("PRAGMA synchronous = OFF")

    patch.setattr(Catalog, "_prepare", hasty)


@mistake
def configs_are_not_stored(patch: Patch) -> None:
    apply = Catalog._apply

    def forgetful(self: Catalog, entries: Iterable[Any]) -> None:
        apply(self, [entry for entry in entries if entry[0] != "configs"])

    patch.setattr(Catalog, "_apply", forgetful)


# Of checksums


@mistake
def indexes_are_believed(patch: Patch) -> None:
    patch.setattr(flips, "SHARE", 1)
    patch.setattr(checksums.Checksum, "__ne__", lambda self, other: False)


@mistake
def snapshots_of_producers_are_believed(patch: Patch) -> None:
    patch.setattr(flips, "SHARE", 1)
    check = ProducerState.from_snapshot

    def believe(data: bytes) -> Any:
        head, body = data[:2], data[producer_state._SNAPSHOT_HEAD.size :]
        return check(head + crc32c(body).to_bytes(4) + body)

    patch.setattr(ProducerState, "from_snapshot", believe)


@mistake
def small_files_are_believed(patch: Patch) -> None:
    parse = checked_file.parse

    def believe(path: str, line: bytes) -> Any:
        with suppress(ValueError):
            return json.loads(line.split(b" ", 4)[4])
        return parse(path, line)

    patch.setattr(checked_file, "parse", believe)


@mistake
def rows_of_the_catalog_are_believed(patch: Patch) -> None:
    patch.setattr(catalog, "is_whole", lambda row: True)


# Of users, ACLs and quotas


@mistake
def acls_are_stored_one_by_one(patch: Patch) -> None:
    add_acls = Catalog.add_acls

    def add(catalog: Catalog, acls: Sequence[Acl]) -> None:
        for acl in acls:
            add_acls(catalog, [acl])

    patch.setattr(Catalog, "add_acls", add)


@mistake
def users_are_stored_one_by_one(patch: Patch) -> None:
    def store(catalog: Catalog, changes: Mapping[str, tuple[Mechanism, Credential | None]]) -> None:
        for name, change in changes.items():
            scram_users.store(catalog, {name: change})

    patch.setattr(api_51_alter_user_scram_credentials, "store", store)


@mistake
def acls_are_in_effect_before_they_are_stored(patch: Patch) -> None:
    create = AccessControl.create

    def careless(control: AccessControl, acls: Sequence[Acl]) -> None:
        new = [acl for acl in acls if acl not in control.authorizer.acls]
        control.authorizer.add(new)
        create(control, acls)

    patch.setattr(AccessControl, "create", careless)


@mistake
def deleted_users_come_back(patch: Patch) -> None:
    forgotten = Catalog.alter_configs

    def forget_user(catalog: Catalog, changes: Any) -> None:
        kept = {
            key: {name: value for name, value in one.items() if value is not None}
            for key, one in changes.items()
        }
        is_of_users = any(kind == scram_users.SCRAM for kind, _ in changes)
        forgotten(catalog, kept if is_of_users else changes)

    patch.setattr(Catalog, "alter_configs", forget_user)


@mistake
def quotas_are_stored_one_by_one(patch: Patch) -> None:
    alter = Quotas.alter

    def one_by_one(quotas: Quotas, changes: Any, hosts: Any) -> None:
        for entity, values in changes.items():
            alter(quotas, {entity: values}, hosts)

    patch.setattr(Quotas, "alter", one_by_one)


@mistake
def damaged_coordinator_state_is_cut(patch: Patch) -> None:
    patch.setattr(flips, "SHARE", 1)
    recover = recovery._recover

    def careless(
        segments: Any, first: int, on_batch: Any, refuse_damage: bool, may_be_torn: Any
    ) -> None:
        recover(segments, first, on_batch, False, may_be_torn)

    patch.setattr(recovery, "_recover", careless)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    first = FIRST.get(mistake.__name__, ())
    print(find_failure([*first, *range(1, 1 + RUNS)], STEPS, world="broker"))
