"""The simulated host: virtual time, one thread, one seed."""
