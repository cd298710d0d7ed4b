"""``python -m tests.fuzz [--frames N] [--seconds S] [--seed N] [--keep]``."""

from __future__ import annotations

import argparse
import random
import sys

from tests.fuzz import cases
from tests.fuzz.run import Report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz a broker.")
    parser.add_argument("--frames", type=int, default=100_000, help="how many (default: 100000)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, help="repeat this run")
    parser.add_argument("--keep", action="store_true", help="write findings to tests/fuzz/cases")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)

    def tell(report: Report) -> None:
        print(report, flush=True)

    report = run(seed, options.frames, tell, options.seconds)
    print(report)
    for signature, (finding, stream) in sorted(report.findings.items()):
        print(f"\n{report.times[signature]} times: {finding}\nstream: {stream.hex()[:2000]}")
        if options.keep and stream:
            pieces = cases.reduce(stream, signature)
            if pieces is None:
                print("needs more than this connection")
                continue
            path = cases.write(pieces, signature)
            print(f"kept as {path.name}: {len(pieces)} frames")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
