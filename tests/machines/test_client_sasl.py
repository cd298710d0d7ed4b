"""Logging in: PLAIN and SCRAM, by the examples of their RFCs."""

from __future__ import annotations

import pytest

from headrace.client.errors import AuthenticationFailed
from headrace.client.sasl import Sasl, conversation

SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = Sasl("SCRAM-SHA-256", "user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"


def test_plain_says_all_at_once() -> None:
    talk = conversation(Sasl("PLAIN", "ann", "s3crét"))
    assert next(talk) == "\0ann\0s3crét".encode()
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_scram_is_that_of_rfc_7677() -> None:
    talk = conversation(PENCIL, NONCE)
    assert next(talk) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert talk.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        talk.send(SERVER_FINAL)


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    for final in (b"v=AAAA", b"e=other-error", b"", b"v=\xff", "v=ä".encode()):
        talk = conversation(PENCIL, NONCE)
        next(talk)
        talk.send(SERVER_FIRST)
        with pytest.raises(AuthenticationFailed):
            talk.send(final)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many",
        b"r=somebody-else,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0",
        b"r=rOprNGfwEbeRWgbNEkqO\xff,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many",
        b"r=rOprNGfwEbeRWgbNEkqO\xff,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # not ASCII
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # nothing of the broker's
        b"r=rOprNGfwEbeRWgbNEkqOx,s=!!!!,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Za,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        b"m=more,r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=+4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=٤٠٩٦".encode(),
    ],
)
def test_a_challenge_that_makes_no_sense_ends_it(challenge: bytes) -> None:
    talk = conversation(PENCIL, NONCE)
    next(talk)
    with pytest.raises(AuthenticationFailed):
        talk.send(challenge)


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001])
def test_too_few_and_too_many_iterations_are_refused(iterations: int) -> None:
    talk = conversation(PENCIL, NONCE)
    next(talk)
    with pytest.raises(AuthenticationFailed, match=f"asks for {iterations} iterations"):
        talk.send(SERVER_FIRST.replace(b"i=4096", b"i=%d" % iterations))


def test_names_are_escaped_and_nonces_are_new() -> None:
    odd = Sasl("SCRAM-SHA-512", "a=b,c", "x")
    first, second = next(conversation(odd)), next(conversation(odd))
    assert first.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert first != second


def test_passwords_are_not_shown() -> None:
    assert "pencil" not in repr(PENCIL)
