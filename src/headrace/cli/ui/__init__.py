"""``headrace ui``: a page to look at the queues of a cluster, and to work on them."""
