"""``headrace perf produce`` and ``headrace perf share-consume``."""
