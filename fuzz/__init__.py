"""Coverage-guided fuzzing of what a member reads from the network: handshake, decoder, processes (see `__main__`)."""
