"""Identity and permission of clients: pure machines without clock, socket or file."""
