"""``python -m tests.fuzz [--frames N] [--seconds S] [--seed N] [--keep] [--sockets | --tls]``."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz import cases, sockets, tls
from tests.fuzz.run import Report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz a broker.")
    parser.add_argument("--frames", type=int, default=100_000, help="how many (default: 100000)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, help="repeat this run")
    parser.add_argument("--keep", action="store_true", help="write findings to tests/fuzz/cases")
    parser.add_argument("--sockets", action="store_true", help="over sockets, to a new process")
    parser.add_argument("--tls", action="store_true", help="TLS: so many connections")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    if options.sockets:
        with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
            print(f"seed {seed}: {sockets.run(Path(folder), seed, options.frames, print)}")
        return 0

    if options.tls:
        with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
            found = tls.fuzz(Path(folder), seed, options.frames, options.seconds)
        print(found)
        return 1 if found.findings else 0

    def tell(report: Report) -> None:
        print(report, flush=True)

    report = run(seed, options.frames, tell, options.seconds)
    print(report)
    for signature, (_, stream) in sorted(report.findings.items()):
        print(f"{report.times[signature]} times: {signature}")
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
