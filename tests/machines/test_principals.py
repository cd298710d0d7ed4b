"""Principals: their text, and that requests carry them."""

import pytest

from headrace.net.call import Client
from headrace.net.listeners import Listener
from headrace.security.principal import ANONYMOUS, Principal, super_users


def test_text_and_back():
    principal = Principal("CN=a,O=b:c")
    assert str(principal) == "User:CN=a,O=b:c"
    assert super_users(f" {principal};;User:b") == {str(principal), "User:b"}


@pytest.mark.parametrize("text", ["User:b;bob", "alice", ":alice"])
def test_without_a_type(text):
    with pytest.raises(ValueError, match="expected a string in format"):
        super_users(text)


def test_a_request_without_authentication_is_anonymous():
    client = Client("127.0.0.1", 1, Listener("localhost", 9092))
    assert client.principal == ANONYMOUS
    assert str(client.principal) == "User:ANONYMOUS"
    assert client.address == "/127.0.0.1"
