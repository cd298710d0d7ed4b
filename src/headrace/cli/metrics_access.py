"""The protection of a port that serves HTTP, from the files that options name."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadUsage, one_line_error
from .secret_files import passwords, warn_of_readers

if TYPE_CHECKING:
    from headrace.broker.metrics.server import MetricsAccess


def server_tls(path: Path) -> ssl.SSLContext:
    """Return the TLS of a port.

    :param path: a PEM file with a private key and certificates
    :raises BadUsage: it cannot be used
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        warn_of_readers(path)
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(path, password=lambda: "")
    except OSError as error:
        raise BadUsage(f"cannot use the key and certificates: {one_line_error(error)}") from error
    return context


def metrics_access(
    tls: Path | None, users: Path | None, host_names: Sequence[str]
) -> MetricsAccess:
    """Return the protection of a metrics port.

    :param tls: a PEM file with a private key and certificates; None for plain HTTP
    :param users: a file of ``NAME:PASSWORD`` lines; None to admit everybody
    :param host_names: further names under which it is served
    :raises BadUsage: a file cannot be used
    """
    from headrace.broker.metrics.server import MetricsAccess

    context = None if tls is None else server_tls(tls)
    pairs = [] if users is None else passwords(users)
    lines = [f"{name}:{password}".encode() for name, password in pairs]
    return MetricsAccess(context, lines, host_names)
