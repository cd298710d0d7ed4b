"""The public keys that tokens are verified with, from a file or a URL.

They are read in a thread, at the start, when they are old, and when a token has a key that is not
among them. A login never waits for that.
"""

from __future__ import annotations

import threading
import urllib.request
from time import monotonic
from urllib.parse import urlsplit

from headrace.log_lines import LimitedLog, get_logger
from headrace.security.oauthbearer import KeySet

from .limits import JWKS_TIMEOUT_S, MAX_JWKS_BYTES, MIN_JWKS_INTERVAL_S

log = LimitedLog(get_logger("headrace.sasl"))


class KeySource:
    """A key set that is read again and again.

    :param url: with the scheme ``file``, ``https`` or ``http``
    :param refresh_ms: the age at which the keys are read again
    :param backoff_ms: the time to the next attempt after a failure; it doubles with each
    :raises ValueError: for another URL
    """

    def __init__(self, url: str, *, refresh_ms: int, backoff_ms: int, max_backoff_ms: int) -> None:
        if urlsplit(url).scheme not in ("file", "https", "http"):
            raise ValueError("expected a URL with file, https or http")
        self._url = url
        self._refresh_s = refresh_ms / 1000
        self._backoff_s = backoff_ms / 1000
        self._max_backoff_s = max_backoff_ms / 1000
        self._keys: KeySet | None = None
        self._wanted = threading.Event()
        self._loaded = threading.Event()
        self._is_closed = False
        self._read_at = -float("inf")
        self._thread = threading.Thread(target=self._run, name="headrace-jwks", daemon=True)
        self._thread.start()
        if urlsplit(url).scheme == "file":
            self._loaded.wait(JWKS_TIMEOUT_S)  # the first login finds the keys

    def present(self) -> KeySet | None:
        """Return the present keys, None while there are none."""
        return self._keys

    def refresh(self) -> None:
        """Read the keys again soon, unless they were read a moment ago."""
        if monotonic() - self._read_at >= MIN_JWKS_INTERVAL_S:
            self._wanted.set()

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._wanted.set()

    def _run(self) -> None:
        failures = 0
        while not self._is_closed:
            self._wanted.clear()
            try:
                self._keys = KeySet(self._read())
                failures = 0
            except Exception as error:  # the thread must not end: an endpoint may answer anything
                failures += 1
                log.error("keys", "cannot read the keys of tokens from %s: %s", self._url, error)
            self._read_at = monotonic()
            self._loaded.set()
            delay_s = self._refresh_s
            if failures:
                delay_s = min(self._backoff_s * 2 ** min(failures - 1, 30), self._max_backoff_s)
            self._wanted.wait(delay_s)

    def _read(self) -> bytes:
        """Return the document.

        :raises OSError: when it cannot be read
        :raises ValueError: when it is too large
        """
        with urllib.request.urlopen(self._url, timeout=JWKS_TIMEOUT_S) as response:
            data: bytes = response.read(MAX_JWKS_BYTES + 1)
        if len(data) > MAX_JWKS_BYTES:
            raise ValueError(f"it has more than {MAX_JWKS_BYTES} bytes")
        return data
