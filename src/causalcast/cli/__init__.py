"""The command causalcast."""
