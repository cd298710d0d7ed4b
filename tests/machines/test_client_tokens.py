"""Tokens of OAUTHBEARER on the side of the client: their settings, and when they are fetched."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest

from headrace.client.config import read_config
from headrace.client.errors import AuthenticationFailed, ConnectionFailed, UnsupportedSetting
from headrace.client.java_properties import from_java
from headrace.client.sasl import (
    ALLOWED_URLS,
    RENEWAL,
    Token,
    TokenCallback,
    TokenEndpoint,
    TokenFile,
    TokenSource,
    bearer,
    read_token,
)

pytestmark = pytest.mark.pure

OAUTH = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
}
NAME = "sasl.oauthbearer"
URL = f"{NAME}.token.endpoint.url"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def current(source: TokenSource) -> Token:
    return asyncio.run(source.current())


def source_of(config: Mapping[str, Any]) -> TokenSource:
    sasl = read_config(from_java({**OAUTH, **config})).security.sasl
    assert sasl is not None
    assert sasl.tokens is not None
    return sasl.tokens


def test_the_message_is_that_of_rfc_7628() -> None:
    talk = bearer(Token("abc", "ann", inf, {"trace": "1"}))
    assert next(talk) == b"n,,\x01auth=Bearer abc\x01trace=1\x01\x01"
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_a_refusal_is_confirmed() -> None:
    talk = bearer(Token("abc", "ann", inf))
    assert next(talk) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert talk.send(b'{"status":"invalid_token"}') == b"\x01"


@pytest.mark.parametrize(
    ("lasts_s", "renewal", "fetches"),
    [(600, RENEWAL, 1), (0, RENEWAL, 3), (600, 0, 3), (inf, 0, 3)],
)
def test_a_token_is_kept(lasts_s: float, renewal: float, fetches: int) -> None:
    calls = []

    def fetch(_: object) -> Token:
        calls.append(1)
        return Token("abc", "ann", time.time() + lasts_s)

    source = TokenSource(fetch, renewal)
    for _ in range(3):
        assert current(source).text == "abc"
    assert len(calls) == fetches


def test_a_token_outlives_a_failing_endpoint() -> None:
    results: list[Token | Exception] = [
        Token("abc", "ann", time.time() + 600),
        ConnectionFailed("down"),
    ]

    def fetch(_: object) -> Token:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    source = TokenSource(fetch, renewal=0)
    assert [current(source).text for _ in range(2)] == ["abc", "abc"]
    source = TokenSource(fetch)
    results.append(ConnectionFailed("down"))
    with pytest.raises(ConnectionFailed, match="down"):
        current(source)


def test_tokens_are_read() -> None:
    body = base64.urlsafe_b64encode(b'{"sub":"ann","exp":7}').rstrip(b"=").decode()
    read = read_token(f" e30.{body}.\n", "x")
    assert (read.text, read.name, read.expires_s) == (f"e30.{body}.", "ann", 7)
    opaque = read_token("abc", "x")
    assert (opaque.name, opaque.expires_s) == ("", inf)
    payload = base64.urlsafe_b64encode(json.dumps({"exp": 10**400}).encode()).decode().rstrip("=")
    assert read_token(f"e30.{payload}.", "x").expires_s == inf
    for text in ("", "a b", "a\x01b", "é"):
        with pytest.raises(AuthenticationFailed, match="x has no token"):
            read_token(text, "x")
    for extensions in ({"auth": "x"}, {"a\x01": "b"}, {"a": ""}, {"a": "\x01"}):
        with pytest.raises(AuthenticationFailed, match="is malformed"):
            read_token("abc", "x", None, extensions)


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (("a b", 1), "oauth_cb has no token"),
        (("abc",), "oauth_cb returns no token and expiry"),
        (None, "oauth_cb returns no token and expiry"),
        (("abc", "soon"), "oauth_cb returns no token and expiry"),
        (("abc", 1, "ann", "x"), "oauth_cb returns no token and expiry"),
        (("abc", 10**400), "oauth_cb returns no token and expiry"),
    ],
)
def test_what_a_callback_returns_is_checked(found: object, complaint: str) -> None:
    with pytest.raises(AuthenticationFailed, match=complaint):
        current(TokenSource(TokenCallback(lambda _: found)))


def test_secrets_are_not_shown() -> None:
    endpoint = TokenEndpoint("http://u:pw@h/x?k=pw", "ann", "pw", extensions={"a": "pw"})
    shown = repr((endpoint._place, Token("pw", "ann", 1), TokenCallback(print, "pw")))
    assert "pw" not in shown
    assert "pw" not in repr(source_of({f"{NAME}.method": "oidc", **CLIENT}))


CLIENT = {f"{NAME}.client.id": "ann", f"{NAME}.client.secret": "pw", URL: "http://h/x"}
JAVAS_CLIENT = {
    f"{NAME}.client.credentials.client.id": "ann",
    f"{NAME}.client.credentials.client.secret": "pw",
    URL: "http://h/x",
}


@pytest.mark.parametrize(
    "config",
    [
        {f"{NAME}.method": "oidc", **CLIENT},
        {f"{NAME}.method": "oidc", **JAVAS_CLIENT},
        JAVAS_CLIENT,
        {
            "sasl.jaas.config": f'{MODULE} required clientId="ann" clientSecret="pw" scope="s" '
            'extension_a="b" extension_c="d";',
            URL: "http://h/x",
        },
    ],
)
def test_an_endpoint_is_read(config: Mapping[str, str]) -> None:
    given = {f"{NAME}.scope": "s", f"{NAME}.extensions": "a=b,c=d"}
    fetch = source_of({**given, **config})._fetch
    assert fetch == TokenEndpoint("http://h/x", "ann", "pw", "s", {"a": "b", "c": "d"})


def test_a_file_is_read_again_and_again() -> None:
    config = from_java({**OAUTH, URL: "file:///a%20b"})
    assert config == {**OAUTH, "oauth_cb": TokenFile("/a b")}
    assert from_java(config) == config
    assert source_of(config)._renewal == 0


def test_only_allowed_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may write a client's settings, and have the file sent to a broker of their own."""
    allowed, other = tmp_path / "a b", tmp_path / "other"
    allowed.write_text("abc\n")
    other.write_text("secret\n")
    monkeypatch.delenv(ALLOWED_URLS, raising=False)
    for urls in (None, "", "file:///", f"{other.as_uri()}x", str(tmp_path)):
        if urls is not None:
            monkeypatch.setenv(ALLOWED_URLS, urls)
        for fetch in (TokenFile(str(other)).fetch, lambda: TokenFile(str(other))("")):
            with pytest.raises(AuthenticationFailed, match=f"set .*{ALLOWED_URLS} to file://"):
                fetch()
    monkeypatch.setenv(ALLOWED_URLS, f"file:///elsewhere, {allowed.as_uri()}")
    assert TokenFile(str(allowed)).fetch().text == "abc"
    with pytest.raises(AuthenticationFailed, match="may not be read"):
        TokenFile(str(other)).fetch()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "OAUTHBEARER needs tokens: set sasl.oauthbearer.token.endpoint.url and"),
        ({f"{NAME}.config": "principal=ann"}, "needs tokens"),
        ({f"{NAME}.method": "oidc"}, "client.id and sasl.oauthbearer.client.secret must be set"),
        (
            {**CLIENT, URL: "ftp://h/x"},
            f"^{URL} cannot be used: it is not a URL with",
        ),
        ({**CLIENT, URL: "http:///x"}, f"^{URL} cannot be used"),
        ({**CLIENT, f"{NAME}.grant.type": "jwt"}, "grant.type jwt is not supported here"),
        ({**CLIENT, f"{NAME}.extensions": "a"}, "extensions cannot be used: expected"),
        (
            {**CLIENT, URL: "https://h/", "https.ca.location": "/missing"},
            "^https.ca.location cannot",
        ),
    ],
)
def test_mistakes(config: dict[str, str], complaint: str) -> None:
    with pytest.raises(UnsupportedSetting, match=complaint) as refused:
        source_of(config)
    assert "\n" not in str(refused.value)
    assert "pw" not in str(refused.value)
