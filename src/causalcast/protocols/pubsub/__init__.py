"""Topic-based publish/subscribe (document 002, chapter 5)."""
