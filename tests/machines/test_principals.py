"""Principals: their text, and that requests carry them."""

import pytest

from headrace.handlers.context import RequestContext
from headrace.security.principal import ANONYMOUS, Principal


def test_text_and_back():
    principal = Principal("User", "CN=a,O=b:c")
    assert str(principal) == "User:CN=a,O=b:c"
    assert Principal.parse(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_without_a_type(text):
    with pytest.raises(ValueError, match="expected a string in format"):
        Principal.parse(text)


def test_a_request_without_authentication_is_anonymous():
    context = RequestContext(0, "client", "/127.0.0.1", 1, "localhost", 9092)
    assert context.principal == ANONYMOUS
    assert str(context.principal) == "User:ANONYMOUS"
    assert context.host == "127.0.0.1"
    assert context.listener_name == "PLAINTEXT"
