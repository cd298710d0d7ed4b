"""The protection of a port that serves HTTP, from the files that options name."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadUsage, one_line_error
from .secret_files import secret_file, warn_of_readers

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
    lines: list[bytes] = []
    try:
        if users is not None:
            lines = secret_file(users).splitlines()
            lines = [line for line in lines if line.strip() and not line.startswith(b"#")]
            if not lines or not all(b":" in line for line in lines):
                raise BadUsage(f"{users} has no lines of the form NAME:PASSWORD")
    except OSError as error:
        raise BadUsage(f"cannot protect the metrics: {one_line_error(error)}") from error
    return MetricsAccess(context, lines, host_names)
