"""Client histories: do the reads of clients fit session guarantees and causal consistency? See `docs/histories.md`."""
