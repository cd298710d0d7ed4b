"""What the random conversations share that are held with Kafka and with headrace at once.

What is known to differ is kept out of them (docs/differences.md). A failure prints the conversation
and its seed; run it again with HEADRACE_TEST_SEED.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.randrange(10**6))


def told(seed: int, said: Sequence[str]) -> str:
    """What a failure prints: the conversation up to where the two part ways."""
    return f"HEADRACE_TEST_SEED={seed}: Kafka, headrace\n" + "\n".join(said)
