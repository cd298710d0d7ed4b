"""What a consumer knows, without asking, of how far it is behind the end of a partition (KIP-695).

The *end* is the high watermark or, for read_committed, the last stable offset: what this consumer
could read up to. It is learnt from fetch responses, or from an answer to ListOffsets that was asked
for in the background. The lag counts from the *position*: what the application has been handed out.

An end that is known from before the position moved is no proof of being caught up: whatever moved
it may have come along with more. So equal to the position it counts only when it was learnt at that
position; otherwise the lag is unknown.
"""

from __future__ import annotations


class PartitionLag:
    """The knowledge about one assigned partition. Make a new one when it is assigned anew.

    :param position: where reading starts; None until that is known. Set it when the application
        seeks: what is known of the end stays
    :param old_high_watermark: what the client still remembers from an earlier assignment: not to be
        believed until something has been fetched
    """

    __slots__ = (
        "_end",
        "_end_learnt_at",
        "_fetched",
        "_old_high_watermark",
        "_read_committed",
        "position",
    )

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
        """Records up to ``next_offset`` (exclusive) have been handed out."""
        self.position = next_offset
        self._fetched = True

    def reach_end(self, offset: int) -> None:
        """A fetch found nothing more at ``offset``; what lies between it and the last record holds
        none.
        """
        self._fetched = True
        self.position = self._end = self._end_learnt_at = offset

    def see_high_watermark(self, high_watermark: int) -> None:
        """The high watermark of the last fetch response, which is never older than what has been
        handed out.
        """
        if high_watermark < 0 or (high_watermark == self._old_high_watermark and not self._fetched):
            return
        # The last stable offset lies between the position and the high watermark: when these meet,
        # it is there.
        if not self._read_committed or high_watermark == self.position:
            self._end, self._end_learnt_at = high_watermark, self.position

    def learn_end(self, end: int, asked_at: int | None) -> None:
        """ListOffsets has answered ``end``; ``asked_at`` was the position when it was asked."""
        if self._end is None or end > self._end or self._end_learnt_at != self.position:
            self._end, self._end_learnt_at = end, asked_at

    def lag(self) -> int | None:
        """How many offsets the broker has beyond the position; None when unknown. Zero or less is
        caught up.
        """
        if self.position is None or self._end is None:
            return None
        if self._end <= self.position and self._end_learnt_at != self.position:
            return None
        return self._end - self.position
