"""The control socket of a running broker: a Unix socket in its data directory.

Only the user that runs the broker can connect. A connection sends one request, a line of JSON, and
gets one response, a line of JSON with ``error`` if it failed.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from headrace.log.files import remove_file

SOCKET_FILE = "control.sock"
SNAPSHOT = "snapshot"
"""The request for a snapshot, which lives until the connection is closed. The response has ``name``
(of its directory in the data directory) and ``offline`` (names of offline logs).
"""
_MAX_PATH_BYTES = 100
"""The kernel's limit for a socket's path is 104 bytes or more."""


def listen(directory: str) -> socket.socket:
    """Return a listening socket in a data directory, which this process must hold.

    :raises OSError: when it cannot be created
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove_file(f"{directory}/{SOCKET_FILE}")
        os.fchmod(listening.fileno(), 0o600)  # Linux creates the file with this mode
        with _address(directory) as address:
            listening.bind(address)
        os.chmod(f"{directory}/{SOCKET_FILE}", 0o600)
        listening.listen()
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def connect(directory: str, timeout_s: float) -> socket.socket:
    """Connect to the broker that runs in a data directory.

    :raises ConnectionRefusedError: when no broker listens
    :raises FileNotFoundError: when no broker has listened there since a clean stop
    :raises OSError: when connecting fails, for example PermissionError
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout_s)
        with _address(directory) as address:
            connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected


@contextlib.contextmanager
def _address(directory: str) -> Iterator[str]:
    """Yield a path of the socket that is short enough for the kernel."""
    path = f"{directory}/{SOCKET_FILE}"
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_FILE}"
    finally:
        os.close(fd)
