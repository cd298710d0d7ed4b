"""Functions that read bytes of clients or of the disk, each with the errors that it may raise.

A target is called with any bytes. It returns, or raises :class:`Crash`. The module imports nothing
of the broker before a target is first called, so that coverage can be measured.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

MOST_DECOMPRESSED_BYTES = 300 * 1024 * 1024

TOO_LONG_S = 5.0
"""The processor time that no input of some kilobytes may take."""


class Crash(AssertionError):
    """An error that a target must not raise."""


@contextlib.contextmanager
def only(*expected: type[BaseException]) -> Iterator[None]:
    """Let the block raise nothing but these, and take no longer than it may.

    :raises Crash: for other exceptions
    """
    started = time.process_time()
    try:
        yield
    except expected:
        pass
    except Exception as error:
        raise Crash("".join(traceback.format_exception(error))) from error
    took_s = time.process_time() - started
    if took_s > TOO_LONG_S:
        raise Crash(f"took {took_s:.1f} s")


# Frames -------------------------------------------------------------------------------------------


def frame(data: bytes) -> None:
    """Read a request, its header and its body, in one piece and in slices; and refuse it."""
    from headrace.handlers import APIS
    from headrace.net import wire
    from headrace.net.refusals import refusing_all
    from headrace.protocol.errors import ErrorCode
    from headrace.protocol.frames import BadFrame, request_header
    from headrace.protocol.primitives import NullArray
    from headrace.protocol.time_slices import run_now

    with only(BadFrame):
        header = request_header(memoryview(data))
        api = APIS.get(header.api_key)
        if api is None or not api.lowest <= header.api_version <= api.highest:
            return
        try:
            request = wire.read_request(api, memoryview(data), header)
        except NullArray:
            request = wire.read_request(api, memoryview(data), header, allow_nulls=True)
            refusal = refusing_all(request, api.response, ErrorCode.INVALID_REQUEST)
            refused = run_now(refusal)
        else:
            sliced = run_now(wire.read_request_sliced(api, memoryview(data), header))
            if sliced.encoded(header.api_version) != request.encoded(header.api_version):
                raise Crash(f"in slices {sliced}, in one piece {request}")
            refused = api.refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        wire.write_response(api, header, refused)


def cut(data: bytes) -> None:
    """Cut bytes into frames."""
    from headrace.protocol.frames import BadFrameSize, frame_ends

    sizes = range(8, 1 << 20)
    with only(BadFrameSize):
        ends = [0, *frame_ends(memoryview(data), len(data), sizes)]
        frames = [end - start - 4 for start, end in pairwise(ends)]
        if not all(size_bytes in sizes for size_bytes in frames) or ends[-1] > len(data):
            raise Crash("the frames do not add up")


# Batches ------------------------------------------------------------------------------------------


def batch(data: bytes) -> None:
    """Check a producer's batch, and open it as the broker does for timestamps and compaction."""
    from headrace.log.validation import check_client_batch
    from headrace.protocol import record_batch

    with only():
        for config in _log_configs():
            check_client_batch(memoryview(data), config, 1_750_000_000_000)
    with only(record_batch.CorruptBatch):
        for position, found in record_batch.headers(data):
            whole = data[position : position + found.size_bytes]
            if found.is_control:
                record_batch.marker_in(whole)
            for _ in record_batch.records(whole):
                pass
    acquired(data)
    with only(record_batch.CorruptBatch):
        ranges, positions = record_batch.offset_ranges(data)
        if len(positions) != len(ranges) + 1:
            raise Crash("offset ranges and positions differ in number")


def acquired(data: bytes) -> None:
    """Read the records of a share consumer, who has acquired some offsets."""
    from headrace.client.records import UnreadableBatch, decode_lists
    from headrace.client.share.types import AcquiredRange

    ranges = [AcquiredRange("t", 0, *run, 1) for run in ((0, 3), (5, 5), (2**40, 2**62))]
    offsets: list[int] = []
    for decoded in decode_lists(data, ranges):
        if not isinstance(decoded, UnreadableBatch):
            offsets += [record.offset for record in decoded]
    if any(offset >= following for offset, following in pairwise(offsets)):
        raise Crash("the records are not in order")


@cache
def _log_configs() -> tuple[Any, ...]:
    from tests.log_configs import log_config

    return log_config(), log_config(cleanup_policy="compact", message_timestamp_before_max_ms=1000)


def right_batch(data: bytes) -> None:
    """Do the same with the right length and checksum."""
    from tests.fuzz.batches import with_right_crc

    if len(data) < 61:
        return
    spoiled = bytearray(data)
    spoiled[:8] = bytes(8)
    struct.pack_into(">i", spoiled, 8, len(data) - 12)
    spoiled[16] = 2
    batch(with_right_crc(spoiled))


def compression(data: bytes) -> None:
    """Decompress: the first byte is the codec."""
    from headrace.protocol.compression import BadCompression, decompressed

    if data:
        with only(BadCompression):
            size_bytes = sum(map(len, decompressed(data[0] & 7, memoryview(data)[1:])))
            if size_bytes > MOST_DECOMPRESSED_BYTES:
                raise Crash(f"{size_bytes} bytes from {len(data)}")


# Consumers ----------------------------------------------------------------------------------------


def subscription(data: bytes) -> None:
    """Read a subscription and an assignment, and write what was read."""
    from headrace.protocol import consumer_protocol

    with only(ValueError):
        consumer_protocol.read_subscribed_topics(data)
    with only(ValueError):
        found = consumer_protocol.read_subscription(data)
        version = consumer_protocol.subscription_version(data)
        again = consumer_protocol.read_subscription(data[:2] + found.encoded(version))
        if again != found:
            raise Crash(f"{found} becomes {again}")
    with only(ValueError):
        consumer_protocol.read_assignment(data)


def regex(data: bytes) -> None:
    """Compile an expression and match topics with it."""
    from headrace.groups.consumer.regex import InvalidRegex, Regex

    pattern = data.decode("utf-8", "surrogateescape" if data[:1] == b"\xff" else "replace")
    with only(InvalidRegex):
        compiled = Regex(pattern)
        for topic in ("t0", "", "x" * 249, "a" * 249):
            compiled.matches(topic)


# Coordinator records ------------------------------------------------------------------------------


def joined(records: list[tuple[bytes, bytes | None]]) -> bytes:
    """Return coordinator records as the bytes of an input."""
    pieces = []
    for key, value in records:
        pieces += [struct.pack(">H", len(key)), key]
        pieces += [struct.pack(">H", 0xFFFF if value is None else len(value)), value or b""]
    return b"".join(pieces)


def _split(data: bytes) -> list[tuple[bytes, bytes | None]]:
    found, position = [], 0

    def take() -> bytes | None:
        nonlocal position
        if position + 2 > len(data):
            return None
        (size,) = struct.unpack_from(">H", data, position)
        position += 2
        if size == 0xFFFF:
            return None
        taken = data[position : position + size]
        position += size
        return taken

    while position + 2 <= len(data):
        key = take() or b""
        found.append((key, take()))
    return found


def _replay(coordinator: Any, data: bytes) -> None:
    """Replay records, as a start of the broker does: what can be decoded can be replayed, what is
    replayed can be encoded, and the timers run.
    """
    from headrace.outcome import Position

    for offset, (key, value) in enumerate(_split(data)):
        record = None
        with only(ValueError):
            record = coordinator.decode(key, value)
        if record is not None:
            with only():
                again = coordinator.decode(*coordinator.encode(record))
                if again != record:
                    raise Crash(f"{record} becomes {again}")
                coordinator.replay(record, Position(0, offset))
    with only():
        now_ms = 1_750_000_000_000
        if hasattr(coordinator, "loaded"):
            coordinator.loaded(now_ms)
        coordinator.next_deadline_ms()
        for _, outcome in coordinator.expire(now_ms + (1 << 33), now_ms + (1 << 33)):
            for one in outcome.records:
                coordinator.encode(one)
                coordinator.replay(one)


def group_records(data: bytes) -> None:
    """Replay ``__consumer_offsets``."""
    from headrace.broker.config.broker_config import Config
    from headrace.groups.coordinator import GroupCoordinator

    no_topics = SimpleNamespace(topics={}, topics_by_id={}, version=0)
    coordinator = GroupCoordinator(Config({}), no_topics)
    _replay(coordinator, data)
    with only():
        coordinator.list()


def share_records(data: bytes) -> None:
    """Replay ``__share_group_state``."""
    from headrace.share.share_state import ShareCoordinator

    _replay(ShareCoordinator(SimpleNamespace(topics_by_id={}), 500, 300_000, 300_000), data)


def transaction_records(data: bytes) -> None:
    """Replay ``__transaction_state``."""
    from headrace.transactions.transaction import TransactionCoordinator

    _replay(TransactionCoordinator(), data)


# Logins -------------------------------------------------------------------------------------------


@cache
def _mechanisms() -> Mapping[str, Any]:
    """Return mechanisms of all kinds, whose users nobody can guess."""
    from headrace.security.login import EnabledMechanism
    from headrace.security.oauthbearer import OAuthBearerServer, TokenRules, validate_unsecured
    from headrace.security.plain import PlainServer
    from headrace.security.scram import (
        MECHANISMS,
        ScramServer,
        UnknownUsers,
        make_credential,
        salt_password,
    )

    rng = random.Random()
    password = rng.randbytes(32).hex()
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    user = make_credential(mechanism, salt_password(mechanism, password, b"s", 4096), b"s", 4096)
    tokens = partial(validate_unsecured, TokenRules(issuer=password))
    return {
        "PLAIN": EnabledMechanism(lambda: PlainServer({"user": password})),
        "SCRAM-SHA-256": EnabledMechanism(
            lambda: ScramServer(
                mechanism, {"user": user}.get, "nonce", UnknownUsers(mechanism, b"secret", {})
            )
        ),
        "OAUTHBEARER": EnabledMechanism(lambda: OAuthBearerServer(tokens, lambda _: None)),
    }


def login(data: bytes) -> None:
    """Log in with what a client may send: the messages of a mechanism, each after its size. Nobody
    succeeds.
    """
    from headrace.security.login import Login, State

    if not data:
        return
    mechanisms = _mechanisms()
    made = Login(mechanisms)
    with only():
        made.shake_hands(list(mechanisms)[data[0] % len(mechanisms)], data[0] // 128, 0)
        for token in _sized(data[1:]):
            if made.state is State.AUTHENTICATE:
                made.authenticate(token, 0, 0)
    if made.principal is not None:
        raise Crash("somebody without a password is logged in")


def _sized(data: bytes) -> Iterator[bytes]:
    """Yield the messages in bytes, each after a byte with its size; at most three."""
    for _ in range(3):
        if not data:
            return
        size = data[0] if data[0] < 255 else len(data)
        yield data[1 : 1 + size]
        data = data[1 + size :]


def certificate(data: bytes) -> None:
    """Read the subject of a certificate."""
    from headrace.security.distinguished_names import subject

    with only(ValueError):
        subject(data)


def jaas_line(data: bytes) -> None:
    """Parse a JAAS line."""
    from headrace.security.jaas import InvalidJaas, parse

    with only(InvalidJaas):
        parse(data.decode(errors="replace"))


# The page -----------------------------------------------------------------------------------------


def shown_value(data: bytes) -> None:
    """Render a value for the page in each format."""
    from headrace.web.texts import FORMATS, rendered, short

    max_chars = 500
    with only():
        for form in FORMATS:
            text, shown_form, _ = rendered(data, form, max_chars)
            # A line of a dump has 76 characters for 16 bytes.
            if len(text) > (2 * max_chars if shown_form == "hex" else max_chars):
                raise Crash(f"{len(text)} characters as {shown_form}")
            text.encode()
        if len(short(data, max_chars)) > max_chars + 4:
            raise Crash("the line is too long")


def page_of_records(data: bytes) -> None:
    """Search batches for a page: the first byte chooses the query."""
    from headrace.client.partition_reader import ReadBudget
    from headrace.web import records
    from tests.web.serving import searched

    if not data:
        return
    start = "latest" if data[0] & 1 else "earliest"
    query = records.Query("t", start=start, filter=records.Filter(value="v" if data[0] & 2 else ""))
    budget = ReadBudget(1 << 20, 1000, TOO_LONG_S)
    aborted = ((7, 0),) if data[0] & 4 else ()
    with only():
        shelf = records.Shelf(query, budget)
        searched(shelf, data[1:], 0, 1 << 60, aborted)
        if shelf.scanned > 1000 or len(shelf.selected) > shelf.scanned:
            raise Crash(f"{shelf.scanned} records compared, {len(shelf.selected)} found")


def page_request(data: bytes) -> None:
    """Parse the parameters of a request for records."""
    from urllib.parse import parse_qsl

    from headrace.times import time_ms
    from headrace.web.errors import BadRequest
    from headrace.web.record_views import positions_of, records
    from headrace.web.requests import MAX_URL_BYTES
    from headrace.web.schemas import parameters_of, parsed, parsed_text

    with only(BadRequest):
        query = dict(parse_qsl(data[:MAX_URL_BYTES].decode("latin-1"), keep_blank_values=True))
        names = parameters_of(records).__struct_fields__
        query = {name: text for name, text in query.items() if name in names}
        parameters = parsed(records, query)
        positions_of(parameters["positions"])
        parsed_text(time_ms, parameters["time"])


# Files --------------------------------------------------------------------------------------------


def manifest(data: bytes) -> None:
    """Read the manifest of a backup, as it is and with a right checksum."""
    from headrace.backup.directory import BackupError
    from headrace.backup.manifest import MANIFEST_FILE, parsed
    from headrace.log.checked_file import encode
    from headrace.protocol.checksum import crc32c

    head = encode(MANIFEST_FILE, None).rsplit(b" ", 2)[0]
    line = b"%s %08x %s\n" % (head, crc32c(data, crc32c(head)), data)
    for one in (data, line):
        with only(BackupError):
            try:
                entries = parsed(one, MANIFEST_FILE)
            except BackupError as error:
                if not str(error).isprintable() or len(str(error)) > 1000:
                    raise Crash(f"the error is not a line: {error!r}") from error
                raise
            for entry in entries:
                parts = entry.name.split("/")
                if len(parts) > 2 or ".." in parts or "" in parts or "\0" in entry.name:
                    raise Crash(f"the name leads elsewhere: {entry.name!r}")


_SECRET = "q5Vz8k"


def properties_text(data: bytes) -> None:
    """Read a properties file, whose errors have no value, and whose keys are shown."""
    from headrace.properties import properties

    text = data.decode(errors="replace")
    with only(ValueError):
        try:
            properties(f"{text}\nsasl.password={_SECRET}\\u{_SECRET}")
        except ValueError as error:
            if _SECRET in str(error):
                raise Crash(f"the error has a value: {error}") from error
            raise


def first_user(data: bytes) -> None:
    """Parse a user of `--add-scram-file`."""
    from headrace.net.scram_users import InvalidUser, NewUser

    with only(InvalidUser):
        NewUser.parse(data.decode(errors="replace"))


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "frames": frame,
    "cut": cut,
    "batches": batch,
    "right-batches": right_batch,
    "compression": compression,
    "subscriptions": subscription,
    "regexes": regex,
    "group-records": group_records,
    "share-records": share_records,
    "transaction-records": transaction_records,
    "logins": login,
    "certificates": certificate,
    "jaas-lines": jaas_line,
    "shown-values": shown_value,
    "pages-of-records": page_of_records,
    "page-requests": page_request,
    "manifests": manifest,
    "properties": properties_text,
    "first-users": first_user,
}


# Seeds --------------------------------------------------------------------------------------------


def _with_sizes(mechanism: int, *tokens: bytes) -> bytes:
    return bytes([mechanism]) + b"".join(bytes([len(token)]) + token for token in tokens)


_FIXED_SEEDS: Mapping[str, tuple[bytes, ...]] = {
    "logins": (
        _with_sizes(0, b"\0user\0password"),
        _with_sizes(1, b"n,,n=user,r=abc", b"c=biws,r=abcnonce,p=" + b"A" * 43 + b"="),
        _with_sizes(1, b"n,a=user,n=us=2Cer,r=abc,tokenauth=true"),
        _with_sizes(2, b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJleHAiOjF9.\x01\x01", b"\x01"),
    ),
    "certificates": (
        # SEQUENCE { SEQUENCE { version, serial, algorithm, issuer, validity, subject: CN=a } }
        bytes.fromhex("301d301ba003020102020101300030003000300e310c300a06035504030c0361"),
    ),
    "shown-values": (
        b'{"sku": "A-1", "count": [3, 1.5e9, null, true, "\\ud800\\u00e9\\n"]}',
        b"[[[[[[[[1, {}], []]]]]]]]",
        "a\x1b[2J\u202eä\n\t€".encode(),
    ),
    "page-requests": (
        b"topic=t&start=earliest&limit=20&value=%22x&header=a=b&committed=yes&format=json",
        b"topic=t&start=positions&positions=0:1,2:3&rest=4&partition=0",
        b"topic=t&start=time&time=2026-11-22T08:00:00Z&offset=7",
    ),
    "manifests": (
        b'{"headrace": "1", "created": "now", "cluster_id": "c", "files": '
        b'[["orders-0/00000000000000000000.log", 7, 9], ["headrace.db", 0, 0]]}',
    ),
    "properties": (b"a=b\n# c\nd : e\\\n f\\u0041\n", b"sasl.password=x\\tq\n"),
    "first-users": (b"SCRAM-SHA-512=[name=a,password=b,c,iterations=4096]",),
    "jaas-lines": (b"a.B required user_x=\"y\" z='w\\'' ;",),
}


def seeds(target: str, number: int = 200) -> list[bytes]:
    """Return sound inputs of a target, from which fuzzing begins."""
    from headrace.protocol.compression import compress
    from tests.fuzz import batches
    from tests.fuzz.frames import FrameWriter
    from tests.fuzz.schema import served_versions
    from tests.fuzz.words import REGEXES, Words

    rng = random.Random(target)
    if target in _FIXED_SEEDS:
        return list(_FIXED_SEEDS[target])
    if target in ("frames", "cut"):
        writer = FrameWriter(Words(rng))
        versions = rng.sample(served_versions(), min(number, len(served_versions())))
        start = 0 if target == "cut" else 4
        return [writer.frame(version, 1)[start:] for version in versions]
    if target in ("batches", "right-batches"):
        return [batches.batch(rng) for _ in range(number)]
    if target == "pages-of-records":
        return [bytes([rng.randrange(8)]) + batches.batch(rng) for _ in range(number)]
    if target == "compression":
        codecs = rng.choices((1, 2, 3, 4), k=number)
        return [bytes([c]) + compress(c, rng.randbytes(20) * rng.randrange(20)) for c in codecs]
    if target == "subscriptions":
        writer = FrameWriter(Words(rng))
        return [writer._blob(rng.choice(("metadata", "assignment"))) for _ in range(number)]
    if target == "regexes":
        return [text.encode() for text in REGEXES]
    return list(_recorded()[target])


@cache
def _recorded() -> Mapping[str, tuple[bytes, ...]]:
    """Return coordinator records that a broker wrote while it was fuzzed."""
    from headrace.protocol.record_batch import headers, records
    from tests.fuzz.ground import Ground
    from tests.fuzz.run import Fuzzer, Report

    rng = random.Random(1)
    found: dict[str, tuple[bytes, ...]] = {}
    with Ground(1) as ground:
        fuzzer = Fuzzer(rng, ground, Report(1))
        for _ in range(600):
            fuzzer.converse()
        for target, topic in (
            ("group-records", "__consumer_offsets"),
            ("share-records", "__share_group_state"),
            ("transaction-records", "__transaction_state"),
        ):
            written = [
                (record.key or b"", record.value)
                for path in sorted(ground.path.glob(f"{topic}-*/*.log"))
                for data in (path.read_bytes(),)
                for position, header in headers(data)
                for record in records(data[position : position + header.size_bytes])
                if not header.is_control
            ]
            pieces = [written[start : start + 8] for start in range(0, len(written), 8)][:300]
            found[target] = tuple(map(joined, pieces)) or (b"",)
    return found
