"""The asyncio host: real sockets, real time."""
