"""Who a client is and what it may do: pure machines without clock, socket or file."""
