"""Names of hosts and origins in the one form in which they can be compared; other texts are a ValueError."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

__all__ = ["host_of", "host_name", "origin"]

_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?:\[(?P<address>[^\[\]]*:[^\[\]]*)\]|(?P<name>[^\[\]:/?#@]*))(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")


def host_name(name: str) -> str:
    """The name or address of a host as browsers write it: ASCII in lower case, without a dot at its end.

    Letters of other scripts become "xn--..." (IDNA 2008 with the mapping of UTS 46, as in browsers; it needs the
    package idna), and an IPv6 address is in its shortest form, without brackets.
    """
    if ":" in name:
        return str(ipaddress.IPv6Address(name))
    if not name.isascii():
        import idna

        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:  # symbols, which only the rules of 2003 know
            name = name.encode("idna").decode()
    name = name.lower().removesuffix(".")
    if not _NAME.fullmatch(name):
        raise ValueError(f"Expected letters, digits and hyphens, 1 to 63 between two dots, got {name[:80]!r}")
    return name


def host_of(authority: str) -> str:
    """The ``host_name`` in "HOST" or "HOST:PORT", as a request names it."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found["port"] or 0) > 65535:
        raise ValueError(f"Expected a host, perhaps with a port, got {authority[:80]!r}")
    return host_name(found["address"] or found["name"])


def origin(url: str) -> str:
    """Scheme, ``host_name`` and port of an http or https address without more, the port only if it is another one."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"Expected an address such as https://study.example.org, without a path, got {url[:200]!r}")
    name, port = host_of(parts.netloc), parts.port
    host = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{host}{'' if port in (None, _PORTS[parts.scheme]) else f':{port}'}"
