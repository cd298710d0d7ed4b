"""The public keys that tokens are verified with, from a file or a URL.

They are read in a thread, at the start, when they are old, and when a token has a key that is not
among them. The event loop never waits for that, nor does a login.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import urllib.request
from concurrent.futures import Future
from time import monotonic
from urllib.parse import unquote, urlsplit

from headrace.log_lines import LimitedLog
from headrace.security.oauthbearer import KeySet

JWKS_TIMEOUT_S = 10.0
"""The time to read the keys of tokens (JWKS)."""

MAX_JWKS_BYTES = 1024 * 1024
"""The largest document with keys of tokens."""

MIN_JWKS_INTERVAL_S = 5.0
"""The least time between two reads of the keys because of unknown keys in tokens, or their age."""

LEAST_JWKS_BACKOFF_S = 0.1
"""The least time to the next read of the keys after a failure."""

log = LimitedLog("headrace.sasl")


class KeySource:
    """A key set that is read again and again, from :meth:`start` to :meth:`close`.

    :param url: with the scheme ``file``, ``https`` or ``http``
    :param refresh_ms: the age at which the keys are read again, at least ``MIN_JWKS_INTERVAL_S``
    :param backoff_ms: the time to the next attempt after a failure, at least
        ``LEAST_JWKS_BACKOFF_S``; it doubles with each
    :raises ValueError: for another URL
    """

    def __init__(self, url: str, *, refresh_ms: int, backoff_ms: int, max_backoff_ms: int) -> None:
        self._file = _path(url)
        self._url = url
        self._refresh_s = max(refresh_ms / 1000, MIN_JWKS_INTERVAL_S)
        self._backoff_s = backoff_ms / 1000
        self._max_backoff_s = max_backoff_ms / 1000
        self._keys: KeySet | None = None
        self._wake = threading.Event()
        self._tried: Future[None] = Future()
        self._is_closed = False
        self._read_at = -float("inf")

    def start(self, before: KeySource | None = None) -> None:
        """Begin to read the keys.

        :param before: the source that this one replaces. Its keys are used until new ones are read,
            unless they come from elsewhere
        """
        if before is not None and before._url == self._url:
            self._keys = before._keys
        threading.Thread(target=self._run, name="headrace-jwks", daemon=True).start()

    async def tried(self) -> None:
        """Wait until keys in a file were read once, at most ``JWKS_TIMEOUT_S``: then the first
        login finds them.
        """
        if self._file is not None:
            await asyncio.wait({asyncio.wrap_future(self._tried)}, timeout=JWKS_TIMEOUT_S)

    def present(self) -> KeySet | None:
        """Return the present keys, None while there are none."""
        return self._keys

    def refresh(self) -> None:
        """Read the keys again soon, unless they were read a moment ago."""
        if monotonic() - self._read_at >= MIN_JWKS_INTERVAL_S:
            self._wake.set()

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._wake.set()

    def _run(self) -> None:
        failures = 0
        while not self._is_closed:
            self._wake.clear()
            try:
                self._keys = KeySet(self._read())
                failures = 0
            except Exception as error:  # the thread must not end: an endpoint may answer anything
                failures += 1
                log.error("keys", "cannot read the keys of tokens from %s: %s", self._url, error)
            self._read_at = monotonic()
            if not self._tried.done():
                self._tried.set_result(None)
            delay_s = self._refresh_s
            if failures:
                backoff_s = min(self._backoff_s * 2 ** min(failures - 1, 30), self._max_backoff_s)
                delay_s = max(backoff_s, LEAST_JWKS_BACKOFF_S)
            self._wake.wait(min(delay_s, threading.TIMEOUT_MAX))

    def _read(self) -> bytes:
        """Return the document.

        :raises OSError: when it cannot be read
        :raises ValueError: when it is too large
        """
        if self._file is not None:
            data = _read_file(self._file)
        else:
            with urllib.request.urlopen(self._url, timeout=JWKS_TIMEOUT_S) as response:
                data = response.read(MAX_JWKS_BYTES + 1)
        if len(data) > MAX_JWKS_BYTES:
            raise ValueError(f"it has more than {MAX_JWKS_BYTES} bytes")
        return data


def _path(url: str) -> str | None:
    """Return the path of a URL with ``file``, None for one with ``https`` or ``http``.

    :raises ValueError: for another URL
    """
    scheme, host, path, _, _ = urlsplit(url)
    if scheme in ("https", "http"):
        return None
    if scheme != "file":
        raise ValueError("expected a URL with file, https or http")
    if host not in ("", "localhost") or not path:
        raise ValueError("expected the path of a file, as in file:///etc/keys.json")
    return unquote(path)


def _read_file(path: str) -> bytes:
    """Return the beginning of a file: one byte more than a document may have.

    :raises OSError: when it cannot be read
    :raises ValueError: when it is not a regular file
    """
    # Without waiting for the writer of a FIFO.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a FIFO, a device or a socket"
            raise ValueError(f"it is {kind}, not a file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_JWKS_BYTES + 1)
    finally:
        os.close(descriptor)
