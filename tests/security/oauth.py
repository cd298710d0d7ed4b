"""An OAuth provider on loopback: signed tokens, their public key, and a token endpoint."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "a-client", "its-secret"
CLIENT_CREDENTIALS = f"Basic {b64encode(f'{CLIENT_ID}:{CLIENT_SECRET}'.encode()).decode()}"
AUDIENCE = "kafka"
KEY = rsa.generate_private_key(65537, 2048)


def token(audience: str = AUDIENCE, key: rsa.RSAPrivateKey = KEY, name: str = "ann") -> str:
    """Return a token that lasts for ten minutes."""
    now = int(time.time())
    claims = {"sub": name, "aud": audience, "iat": now, "exp": now + 600, "scope": "kafka"}
    return jwt.encode(claims, key, "RS256", {"kid": "k"})


def key_set(folder: Path) -> str:
    """Write the public key into a folder; return the URL of the file."""
    entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "k"}
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [entry]}))
    return path.as_uri()


@contextmanager
def token_endpoint(certificate: Path | None = None) -> Iterator[str]:
    """Serve tokens for client credentials (RFC 6749, section 4.4); yield the URL.

    The scope ``other`` gives tokens for another audience. The path ``/moved`` redirects.

    :param certificate: a file with key and certificate, for HTTPS
    """

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/token")
                self.end_headers()
                return
            is_right = (
                form["grant_type"] == ["client_credentials"]
                and self.headers["Authorization"] == CLIENT_CREDENTIALS
            )
            audience = "others" if form.get("scope") == ["other"] else AUDIENCE
            found = {"access_token": token(audience), "token_type": "Bearer", "expires_in": 600}
            body = json.dumps(found if is_right else {"error": "invalid_client"}).encode()
            self.send_response(200 if is_right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
