"""The receipt of a record: the address that takes its outcome, as a value in the row."""

from __future__ import annotations

from headrace.spark.errors import SourceError
from headrace.spark.token_server import Address

RECEIPT_COLUMN = "receipt"


class Receipt(Address):
    """The address of the reader that holds a record, and the secret that the reader asks for.

    Whoever has it can acknowledge the records that the reader holds, as with the receipt handle of
    other queues. It is worthless when the query has ended.
    """

    __slots__ = ()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Parse the text of a receipt.

        :raises SourceError: it is not the text of a receipt
        """
        address, _, token = text.rpartition("/")
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit() and token):
            raise SourceError(
                f"column {RECEIPT_COLUMN} has '{text}', which is no receipt of kafka-share: "
                "do not change this column"
            )
        return cls(host.strip("[]"), int(port), token)
