"""The values of a consumer group's coordinator records as bytes.
:mod:`headrace.groups.record_schemas` has their keys. All have version 0 and the flexible encoding.
"""

from __future__ import annotations

from headrace.groups.held_schemas import held, with_epochs
from headrace.groups.records import (
    ClassicMember,
    ConsumerAssignment,
    ConsumerMember,
    GroupEpoch,
    HeldPartitions,
    MemberState,
    ResolvedRegex,
)
from headrace.protocol.structures import (
    BLOB,
    I8,
    I32,
    I64,
    ID,
    NULLABLE_STRING,
    STRING,
    STRINGS,
    Tagged,
    array,
    optional,
    record_value,
    structure,
)

_ABSENT = 0
_HELD = held(ID)


def _assignment(
    member_epoch: int,
    previous_epoch: int,
    state: int,
    assigned: HeldPartitions,
    pending: HeldPartitions,
) -> ConsumerAssignment:
    return ConsumerAssignment(
        member_epoch,
        previous_epoch,
        MemberState(state),
        with_epochs(assigned, member_epoch),
        with_epochs(pending, member_epoch),
    )


CONSUMER_EPOCH = record_value(structure(GroupEpoch, I32, Tagged(0, I64, default=0)))
"""The value of type 3."""

_PROTOCOL = structure(tuple, STRING, BLOB)
_CLASSIC_MEMBER = optional(structure(ClassicMember, I32, array(_PROTOCOL)), _ABSENT)

CONSUMER_MEMBER = record_value(
    structure(
        ConsumerMember,
        NULLABLE_STRING,
        NULLABLE_STRING,
        STRING,
        STRING,
        STRINGS,
        STRING,
        I32,
        NULLABLE_STRING,
        Tagged(0, _CLASSIC_MEMBER, always=True),
    )
)
"""The value of type 5."""

CONSUMER_ASSIGNMENT = record_value(
    structure(ConsumerAssignment, I32, I32, I8, _HELD, _HELD, make=_assignment)
)
"""The value of type 8."""

REGEX = record_value(structure(ResolvedRegex, STRINGS, I64, I64))
"""The value of type 16."""
