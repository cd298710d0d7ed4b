"""``headrace configs``: describe and alter configs of topics, brokers, groups and so on."""
