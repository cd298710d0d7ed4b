"""TLS: keys and certificates from a configuration, and connections that use them."""
