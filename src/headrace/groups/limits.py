"""The limits of groups that Kafka has no configs for."""

from __future__ import annotations

MAX_STREAMS_TASKS = 20_000
"""The limit of tasks of a streams group: assigning so many takes about 130 ms."""

MAX_SUBTOPOLOGIES = 1_000
"""The limit of subtopologies of a streams group: deriving their partitions takes up to 200 ms."""

TIMEOUTS_AT_ONCE = 50
"""The timeouts that are handled before other requests are served, in 5 to 10 ms. The sessions of
all members may end together: when a network fails, or after a restart.
"""
