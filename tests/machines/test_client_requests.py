"""Frames of the client's requests."""

from __future__ import annotations

import pytest

from headrace.client.errors import StringTooLong
from headrace.client.frames import encode_request
from headrace.protocol.api import (
    DeleteGroupsRequest,
    MetadataRequest,
    OffsetDeleteRequest,
    SaslHandshakeRequest,
)
from headrace.protocol.schema import Message

pytestmark = pytest.mark.pure

LONGEST = "x" * 0x7FFF


@pytest.mark.parametrize("text", [LONGEST + "y", "é" * 0x4000])
def test_a_string_that_the_protocol_cannot_carry_is_refused(text: str) -> None:
    topic = MetadataRequest.MetadataRequestTopic(name=text)
    requests: list[tuple[Message, int]] = [
        (DeleteGroupsRequest([text]), 2),
        (MetadataRequest([topic]), 12),
        (OffsetDeleteRequest(text), 0),
        (SaslHandshakeRequest(text), 1),
    ]
    for request, version in requests:
        with pytest.raises(StringTooLong, match=r"' is longer than 32767 bytes, .* shorter one$"):
            encode_request(request, version, 1, "me")
    with pytest.raises(StringTooLong):
        encode_request(MetadataRequest(), 12, 1, text)


def test_the_longest_string_is_sent() -> None:
    frame = encode_request(DeleteGroupsRequest([LONGEST]), 2, 1, LONGEST)
    assert frame.count(LONGEST.encode()) == 2
    assert LONGEST.encode() in encode_request(OffsetDeleteRequest(LONGEST), 0, 1, "me")
