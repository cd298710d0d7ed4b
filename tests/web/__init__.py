"""The page: its parts, its JSON, its protection, and the page in a real browser."""
