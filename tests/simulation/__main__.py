"""`python -m tests.simulation [--seed N] [--steps N] [--runs N | --minutes M | --crashes N]
[--trace]`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from .run import WORLDS, Failure, simulate


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Share groups under bad luck."
    )
    parser.add_argument("--seed", type=int, help="repeat this run; without it, runs with new seeds")
    parser.add_argument("--steps", type=int, default=2000, help="how long a run is (default: 2000)")
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        help="how many runs (default: 1); their seeds follow each other",
    )
    parser.add_argument("--minutes", type=float, help="run for so long instead")
    parser.add_argument("--crashes", type=int, help="run until the broker was started so often")
    parser.add_argument("--world", choices=WORLDS, help="what is simulated; default: both in turn")
    parser.add_argument("--trace", action="store_true", help="print every step")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    started, done, counts = time.monotonic(), 0, Counter[str]()
    try:
        told = started
        while (
            counts["starts"] < options.crashes
            if options.crashes
            else time.monotonic() - started < options.minutes * 60
            if options.minutes
            else done < options.runs
        ):
            if options.crashes and time.monotonic() - told > 10:
                told = time.monotonic()
                print(f"{done} runs, {counts['starts']} starts, {told - started:.0f} s", flush=True)
            result = simulate(
                first + done,
                options.steps,
                print if options.trace else None,
                world=options.world or WORLDS[(first + done) % len(WORLDS)],
            )
            counts.update(result.counts)
            done += 1
            if done == 1 or options.trace:
                print(f"seed {result.seed}: digest {result.digest}")
    except Failure as failure:
        print(failure)
        return 1
    except KeyboardInterrupt:
        pass
    seconds = time.monotonic() - started
    happened = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    print(
        f"{done} runs of {options.steps} steps from seed {first} on in {seconds:.1f} s: {happened}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
