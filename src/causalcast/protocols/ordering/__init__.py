"""When a message may be delivered."""
