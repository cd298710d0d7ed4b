"""Cases: bytes that once did harm, as files in ``cases/``.

A JSON file has ``found`` (what went wrong) and ``frames``, hexadecimal pieces that are sent on one
connection to a new broker. A file in ``cases/TARGET/`` is an input of a target of :mod:`.targets`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from headrace.handlers import APIS
from tests.fuzz.ground import Finding, Ground, Wire, requests_in

FOLDER = Path(__file__).parent / "cases"


def pieces_of(stream: bytes) -> list[bytes]:
    """Cut a stream into its frames, and what is left."""
    pieces, position = [], 0
    for _ in requests_in(stream)[0]:
        size = 4 + int.from_bytes(stream[position : position + 4], "big")
        pieces.append(stream[position : position + size])
        position += size
    if position < len(stream):
        pieces.append(stream[position:])
    return pieces


def play(pieces: list[bytes]) -> None:
    """Send the pieces of a case to a new broker and check what it does, also after a restart.

    :raises Finding: when it does harm
    """
    with Ground() as ground:
        ground.produce_honestly()
        wire = Wire(ground)
        for piece in pieces:
            wire.send(piece)
            ground.loop.settle()
        ground.check(wire)
        wire.cut()
        ground.loop.advance(10_000)
        ground.check_log()
        ground.check_restart()


def signature_of(pieces: list[bytes]) -> str | None:
    """Return the signature of the finding of a case, None when there is none."""
    try:
        play(pieces)
    except Finding as finding:
        return finding.signature
    return None


def reduce(stream: bytes, signature: str) -> list[bytes] | None:
    """Return the fewest frames of a stream with this finding; None when it needs more than them."""
    pieces = pieces_of(stream)
    if signature_of(pieces) != signature:
        return None
    for piece in list(pieces):
        without = [one for one in pieces if one is not piece]
        if without and signature_of(without) == signature:
            pieces = without
    return pieces


def write(pieces: list[bytes], found: str) -> Path:
    """Write a case, named after its last request, and return its path."""
    stream = b"".join(pieces)
    requests = requests_in(stream)[0]
    api = APIS.get(requests[-1].api_key) if requests else None
    digest = hashlib.blake2b(stream, digest_size=4).hexdigest()
    path = FOLDER / f"{api.name if api else 'bytes'}-{digest}.json"
    frames = [piece.hex() for piece in pieces]
    path.write_text(json.dumps({"found": found, "frames": frames}, indent=1) + "\n")
    return path


def read(path: Path) -> list[bytes]:
    """Read the pieces of a case."""
    return [bytes.fromhex(piece) for piece in json.loads(path.read_text())["frames"]]
