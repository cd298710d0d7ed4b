"""``headrace lag``: the progress of groups, now and in the past."""

from headrace.cli.nouns import Noun

from . import history, show

NOUN = Noun("show", show=show.run, history=history.run)
