"""The wire protocol: primitives, frames, messages, versions and record batches."""
