"""Refuses requests that a web page of another site makes its visitor's browser send.

A browser sends such requests to any address that it can reach, a server on the same machine too.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TrustedSites:
    """ASGI middleware that answers requests from other sites with 403.

    Browsers send the page's site in `Origin`; other clients send none. In an attack by DNS
    rebinding, `Host` is a name that the attacker lets point to this machine.

    Args:
        app: ASGI application.
        hosts: allowed names in `Host`, without ports; None for any.
        origins: sites whose pages may send requests, such as "https://example.com".
    """

    def __init__(self, app, hosts, origins):
        self._app = app
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope, receive, send):
        reason = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        app = JSONResponse({"error": reason}, 403) if reason else self._app
        await app(scope, receive, send)

    def _refusal(self, headers):
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts is not None and _hostname(f"//{host}") not in self._hosts:
            return (
                f"The host name {ascii(host[:80])} is not allowed. "
                "To allow this name, start the server with --allowed-host."
            )
        if origin is None or origin in self._origins or origin.partition("://")[2] == host:
            return None
        return (
            f"Requests from pages of {ascii(origin[:80])} are not allowed. "
            "To allow this site, start the server with --allowed-origin."
        )


def trusted_hosts(host, allowed):
    """The host names of a server that listens on `host`; None for any.

    A loopback address has few names. Those of other addresses are unknown unless they are given.

    Args:
        host: address that the server listens on.
        allowed: further names, without ports.
    """
    if not allowed and host not in _LOOPBACK:
        return None
    return {*_LOOPBACK, *(name.lower() for name in (host, *allowed))}


def _hostname(url):
    try:
        return urlsplit(url).hostname
    except ValueError:  # not an address
        return None
