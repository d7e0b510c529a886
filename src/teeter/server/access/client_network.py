"""What stands for one client when requests or connections are counted."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

__all__ = ["client_network"]

_IPV6_PREFIX = 64


def client_network(address: str) -> str:
    """Return the address of a client, or its /64 network for IPv6.

    A single IPv6 client usually has a whole /64 network, so counting its addresses one by one would
    limit nothing.

    Example:
        >>> client_network("192.0.2.7"), client_network("2001:db8::7:1")
        ('192.0.2.7', '2001:db8::/64')
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address

    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None and not parsed.is_loopback:
        return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))
    return address
