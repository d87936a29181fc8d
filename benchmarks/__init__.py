"""Measurements: CPU time and ratios, printed and written to build/bench."""
