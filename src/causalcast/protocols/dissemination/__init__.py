"""How a message reaches everyone."""
