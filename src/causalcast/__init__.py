"""Causal broadcast for Python: reliable, tagged, and provable."""
