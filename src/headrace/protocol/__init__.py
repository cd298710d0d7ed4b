"""The bytes that brokers and clients exchange: primitives, frames, messages, versions, batches."""
