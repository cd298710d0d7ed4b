"""Coverage-guided fuzzing of one target with Atheris: ``python -m tests.fuzz.guided TARGET CORPUS
SECONDS``.

Without Atheris, which is not built for every platform, inputs are mutated without guidance.
Exit status 0 means that no crash was found; the input of a crash is written to the corpus folder's
parent.
"""

from __future__ import annotations

import importlib.util
import logging
import random
import sys
import time
from pathlib import Path

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
MAX_INPUT_BYTES = 4096
MEMORY_MB = 1024


def guided(target: str, corpus: Path, seconds: float) -> None:
    """Fuzz with Atheris, which ends the process."""
    import atheris

    logging.getLogger("headrace").setLevel(logging.CRITICAL)  # else it is slowed down by warnings
    with atheris.instrument_imports(include=["headrace", "tests.fuzz.targets"]):
        from tests.fuzz import targets

        function = targets.TARGETS[target]
        for seed in targets.seeds(target, 3):  # imports what the target needs
            function(seed)
    for number, seed in enumerate(targets.seeds(target)):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={max(1, int(seconds))}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-rss_limit_mb={MEMORY_MB}",
            "-timeout=20",
            f"-artifact_prefix={corpus.parent}/{target}-",
            "-print_final_stats=1",
        ],
        function,
    )
    atheris.Fuzz()


def unguided(target: str, seconds: float, seed: int, runs: int | None = None) -> int:
    """Mutate the seeds of a target for so long, or so often; return the number of inputs.

    :raises Crash: when the target does; the text has the input
    """
    from tests.fuzz.frames import mutated
    from tests.fuzz.targets import TARGETS, Crash, seeds

    rng, function, done = random.Random(seed), TARGETS[target], 0
    inputs = seeds(target)
    end = time.monotonic() + seconds
    while time.monotonic() < end and (runs is None or done < runs):
        data = mutated(rng, rng.choice(inputs))
        try:
            function(data)
        except Crash as crash:
            raise Crash(f"{target} with {data.hex()}: {crash}") from crash
        done += 1
    return done


def main() -> int:
    target, corpus, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    corpus.mkdir(parents=True, exist_ok=True)
    if HAS_ATHERIS:
        guided(target, corpus, seconds)
        return 0
    done = unguided(target, seconds, random.SystemRandom().randrange(1 << 32))
    print(f"{done} inputs without guidance: Atheris is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
