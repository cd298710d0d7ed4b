"""``headrace console-share-consumer``."""
