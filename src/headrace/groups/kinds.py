"""The kinds of groups."""

from __future__ import annotations

from typing import TypeAlias

from .classic.group import ClassicGroup
from .consumer.group import ConsumerGroup
from .share.group import ShareGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup
