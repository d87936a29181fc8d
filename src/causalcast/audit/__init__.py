"""The audit: traces checked on Spark for integrity, agreement, causal order, exact tags and stability."""
