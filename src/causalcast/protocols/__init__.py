"""Sans-I/O protocols: membership, dissemination, ordering, and the port to their host."""
