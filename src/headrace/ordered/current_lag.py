"""The lag of a consumer on a partition, as far as it is known without a request (KIP-695).

The *end* is the high watermark or, for read_committed, the last stable offset: the offset up to
which this consumer could read. It is learnt from fetch responses, or from the answer to a
ListOffsets request in the background. The lag counts from the *position*: the offset up to which
the application has received records.

An end that was learnt before the position moved does not prove that the consumer has caught up:
records may have been appended since. So an end that equals the position counts only if it was
learnt at that position; otherwise the lag is unknown.
"""

from __future__ import annotations


class CurrentLag:
    """The lag of one assigned partition. Create a new one when the partition is assigned again.

    :param position: where reading starts; None until that is known. Set it when the application
        seeks; the known end remains
    :param old_high_watermark: the high watermark that the client remembers from an earlier
        assignment: it is not used until something has been fetched
    """

    def __init__(
        self,
        read_committed: bool,
        position: int | None = None,
        old_high_watermark: int | None = None,
    ) -> None:
        self.position = position
        self._read_committed = read_committed
        self._old_high_watermark = old_high_watermark
        self._fetched = False
        self._end: int | None = None
        self._end_learnt_at: int | None = None

    def advance(self, next_offset: int) -> None:
        """Move the position: records up to ``next_offset`` (exclusive) were delivered."""
        self.position = next_offset
        self._fetched = True

    def reach_end(self, offset: int) -> None:
        """Note a fetch at ``offset`` without records: there are none between the last record and
        ``offset``.
        """
        self._fetched = True
        self.position = self._end = self._end_learnt_at = offset

    def see_high_watermark(self, high_watermark: int) -> None:
        """Note the high watermark of the last fetch response, which is never older than the records
        delivered.
        """
        if high_watermark < 0 or (high_watermark == self._old_high_watermark and not self._fetched):
            return
        # The last stable offset lies between the position and the high watermark: when these meet,
        # it is there.
        if not self._read_committed or high_watermark == self.position:
            self._end, self._end_learnt_at = high_watermark, self.position

    def learn_end(self, end: int, position_then: int | None) -> None:
        """Note the answer of ListOffsets; ``position_then`` was the position at the time of the
        request.
        """
        if self._end is None or end > self._end or self._end_learnt_at != self.position:
            self._end, self._end_learnt_at = end, position_then

    def lag(self) -> int | None:
        """Return the number of offsets between position and end; None when unknown. Zero or less
        means caught up.
        """
        if self.position is None or self._end is None:
            return None
        if self._end <= self.position and self._end_learnt_at != self.position:
            return None
        return self._end - self.position
