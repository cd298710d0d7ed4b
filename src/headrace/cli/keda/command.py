"""``headrace keda-scaler``: KEDA's external scaler for share groups and consumer groups."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.client_options import client_options, client_settings
from headrace.cli.errors import BadUsage
from headrace.cli.metrics_access import server_tls
from headrace.cli.nouns import command
from headrace.cli.options import Address, arg, listen_option, seconds_option
from headrace.cli.process import log_to_stderr, run_until_stopped
from headrace.imports import require
from headrace.net.open_ports import warn_if_open

if TYPE_CHECKING:
    from headrace.client.config import ClientConfig

DEFAULT_LISTEN = Address("127.0.0.1", 6000)
_GRACE_S = 2.0
_MAX_CALLS = 2000
"""The largest number of calls at a time; each ScaledObject of the type external-push has one."""
MAX_CONNECTIONS = 200
_GRPC_OPTIONS = (
    ("grpc.so_reuseport", 0),  # otherwise a second scaler could listen on the same port
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", 5000),
    ("grpc.max_connection_idle_ms", 10_000),  # without a call; KEDA connects again
    ("grpc.max_receive_message_length", 1 << 16),
    ("grpc.max_concurrent_streams", _MAX_CALLS),
)


@command(
    "serve KEDA's external scaler: scale workers by the lag of their group",
    client_options,
    listen_option(DEFAULT_LISTEN, "gRPC"),
    seconds_option("--interval", "interval of queries about watched groups", 0.5),
    seconds_option("--timeout", "limit of one query", 5),
    arg("--grpc-tls", "FILE", "serve TLS, with the private key and certificates of a PEM file"),
    arg(
        "--grpc-client-ca", "FILE", "with --grpc-tls: clients need a certificate of this authority"
    ),
    examples="headrace keda-scaler --bootstrap-server broker:9092\n"
    "headrace keda-scaler --command-config client.properties --interval 2\n"
    "headrace keda-scaler --listen 0.0.0.0:6000 --grpc-tls server.pem --grpc-client-ca ca.pem",
)
def run(options: Namespace) -> None:
    """Serve until SIGTERM or SIGINT.

    :raises Failure: it cannot start
    :raises UnsupportedSetting: a client configuration is wrong
    """
    settings = client_settings(options, options.timeout)
    if options.grpc_client_ca is not None and options.grpc_tls is None:
        raise BadUsage("--grpc-client-ca needs --grpc-tls")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the command reports errors itself
    require("grpc", "keda")
    credentials = _credentials(options.grpc_tls, options.grpc_client_ca)
    log_to_stderr()
    # Without --grpc-client-ca, anybody who reaches it reads the lag of all groups.
    warn_if_open(
        "the scaler",
        options.listen.host,
        login=options.grpc_client_ca is not None,
        tls=credentials is not None,
    )
    asyncio.run(_serve(settings, options, credentials))


def _credentials(tls: Path | None, client_ca: Path | None) -> Any:
    """Return the credentials of the server; None for plaintext.

    :raises BadUsage: a file cannot be used
    """
    import grpc

    if tls is None:
        return None
    server_tls(tls)  # checks it
    try:
        pem = tls.read_bytes()  # OpenSSL finds the key and the certificates in it
        roots = None if client_ca is None else client_ca.read_bytes()
    except OSError as error:
        raise BadUsage(f"cannot read {error.filename}: {error.strerror}") from error
    return grpc.ssl_server_credentials([(pem, pem)], roots, require_client_auth=roots is not None)


async def _serve(settings: ClientConfig, options: Namespace, credentials: Any) -> None:
    import grpc.aio

    from .collector import BacklogCollector
    from .service import ExternalScaler

    at = options.listen
    collector = BacklogCollector(settings, options.interval)
    server = grpc.aio.server(maximum_concurrent_rpcs=_MAX_CALLS, options=_GRPC_OPTIONS)
    ExternalScaler(collector).add_to(server)

    async def start() -> str:
        if credentials is None:
            port = server.add_insecure_port(str(at))
        else:
            port = server.add_secure_port(str(at), credentials)
        await server.start()
        return f"the scaler listens on {Address(at.host, port)}"

    try:
        await run_until_stopped(at, start)
    finally:
        await server.stop(_GRACE_S)
        await collector.close()
