"""Who is in the group."""
