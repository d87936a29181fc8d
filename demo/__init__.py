"""The demonstration: five members over TCP, a control without order, and the audit of both. Run `make demo`."""
