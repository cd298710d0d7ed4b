"""The kinds of groups."""

from __future__ import annotations

from typing import TypeAlias

from headrace.errors import ErrorCode, Refusal

from .classic.group import ClassicGroup
from .consumer.group import ConsumerGroup
from .share.group import ShareGroup
from .streams.group import StreamsGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


def group_not_found(group_id: str) -> Refusal:
    """Return the answer to a request about a group that does not exist."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def wrong_kind(group_id: str, wanted: str) -> Refusal:
    """Return the answer to a request for a group of another kind."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {wanted} group.")
