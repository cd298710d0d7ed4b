"""``headrace produce``, ``headrace consume`` and ``headrace console-share-consumer``."""
