"""The protection of a port that serves HTTP, from the files that options name."""

from __future__ import annotations

import ssl
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadUsage, one_line_error
from .options import arg
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


METRICS_ACCESS = (
    arg(
        "--metrics-tls",
        "FILE",
        "serve the metrics over HTTPS, with the private key and certificates of a PEM file",
    ),
    arg(
        "--metrics-users",
        "FILE",
        "a file of NAME:PASSWORD lines: who may read the metrics (default: everybody)",
    ),
)


def metrics_access(options: Namespace) -> MetricsAccess:
    """Return the protection of a metrics port.

    :param options: parsed from :data:`METRICS_ACCESS` and ``--allow-host``
    :raises BadUsage: a file cannot be used
    """
    from headrace.broker.metrics.server import MetricsAccess

    context = None if options.metrics_tls is None else server_tls(options.metrics_tls)
    pairs = [] if options.metrics_users is None else passwords(options.metrics_users)
    lines = [f"{name}:{password}".encode() for name, password in pairs]
    return MetricsAccess(context, lines, options.allow_host)
