"""The limits of groups that are not Kafka configs."""

from __future__ import annotations

MAX_STREAMS_TASKS = 20_000
"""The most tasks of a streams group: their assignment takes about 130 ms."""

MAX_SUBTOPOLOGIES = 1_000
"""The most subtopologies of a streams group: their numbers of partitions take up to 200 ms."""
