"""Real members that are killed, stopped and cut off while they work; then everything heals and the audit decides."""
