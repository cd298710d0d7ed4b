"""Requests at scale, beside an honest client: no request may hold the event loop."""
