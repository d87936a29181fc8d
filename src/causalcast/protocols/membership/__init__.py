"""Who is in the group."""

from causalcast.protocols.membership.static import StaticMembership

__all__ = ["StaticMembership"]
