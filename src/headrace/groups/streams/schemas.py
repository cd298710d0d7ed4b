"""The values of a streams group's coordinator records as bytes.
:mod:`headrace.groups.record_schemas` has their keys. All have version 0 and the flexible encoding.
"""

from __future__ import annotations

import struct

from headrace.groups.held_schemas import held, with_epochs
from headrace.groups.records import (
    CopartitionGroup,
    Endpoint,
    HeldTaskAssignment,
    InternalTopic,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    StreamsMemberState,
    Subtopology,
    TaskAssignment,
    Topology,
)
from headrace.protocol.structures import (
    I8,
    I16,
    I32,
    I32S,
    I64,
    NULLABLE_STRING,
    STRING,
    STRINGS,
    Tagged,
    Type,
    array,
    fields,
    mapping,
    optional,
    record_value,
    structure,
)

_ABSENT = -1
_NO_EPOCH = -1
_PORT = Type(struct.Struct(">H").pack, lambda reader: reader.i16() & 0xFFFF)
_PAIRS = array(structure(tuple, STRING, STRING))

STREAMS_EPOCH = record_value(
    structure(StreamsEpoch, I32, I64, Tagged(0, I32, _NO_EPOCH), Tagged(1, _PAIRS, ()))
)
"""The value of type 17."""

STREAMS_MEMBER = record_value(
    structure(
        StreamsMember,
        NULLABLE_STRING,
        NULLABLE_STRING,
        STRING,
        STRING,
        I32,
        I32,
        STRING,
        optional(structure(Endpoint, STRING, _PORT), _ABSENT),
        _PAIRS,
    )
)
"""The value of type 19."""

_INTERNAL_TOPICS = array(structure(InternalTopic, STRING, I32, I16, _PAIRS))
_INDEXES = array(I16)

TOPOLOGY = record_value(
    structure(
        Topology,
        I32,
        array(
            structure(
                Subtopology,
                STRING,
                STRINGS,
                STRINGS,
                _INTERNAL_TOPICS,
                STRINGS,
                _INTERNAL_TOPICS,
                array(structure(CopartitionGroup, _INDEXES, _INDEXES, _INDEXES)),
            )
        ),
    )
)
"""The value of type 23."""

_TASKS = mapping(STRING, I32S)

STREAMS_TARGET = record_value(structure(TaskAssignment, _TASKS, _TASKS, _TASKS))
"""The value of type 21."""

_HELD = fields(HeldTaskAssignment, held(STRING), _TASKS, _TASKS)


def _assignment(
    member_epoch: int,
    previous_epoch: int,
    state: int,
    assigned: HeldTaskAssignment,
    pending: HeldTaskAssignment,
) -> StreamsAssignment:
    known = (
        HeldTaskAssignment(with_epochs(one.active, member_epoch), one.standby, one.warmup)
        for one in (assigned, pending)
    )
    return StreamsAssignment(member_epoch, previous_epoch, StreamsMemberState(state), *known)


STREAMS_ASSIGNMENT = record_value(
    structure(StreamsAssignment, I32, I32, I8, _HELD, _HELD, make=_assignment)
)
"""The value of type 22."""
