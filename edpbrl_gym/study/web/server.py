"""The server of pages: it keeps no address of anybody, and waits for no request without end."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

if TYPE_CHECKING:
    import uvicorn

__all__ = ["listen", "make_server"]

_GRACE = 10  # seconds that open requests get when the server stops
_HEAD_TIME = 20.0  # seconds from the beginning of a connection, or the last response, until a request's head is there


def make_server(app: ASGIApp, *, grace: int = _GRACE, own_log: bool = True) -> uvicorn.Server:
    """A server of pages that keeps no address of anybody; open requests get ``grace`` seconds when it stops.

    With ``own_log`` it writes its errors itself, otherwise the log of this process does.
    """
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=_protocol(),
            log_config=uvicorn.config.LOGGING_CONFIG if own_log else None,
            access_log=False,  # it would hold addresses of people
            log_level="warning",
            server_header=False,
            proxy_headers=False,  # addresses are neither used nor stored
            timeout_graceful_shutdown=grace,
            lifespan="off",
            ws="none",
        )
    )


def _protocol() -> type[asyncio.Protocol]:
    """The server's protocol; it closes a connection on which no whole head of a request arrives in time.

    Uvicorn closes one that is silent after a response, but waits without end for the rest of a head, or of a body that
    nobody reads. What a page reads has a deadline of its own (``limited_body``).
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """Uvicorn's, with a deadline."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_request()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._expect_request()

        def _expect_request(self) -> None:
            self.loop.call_later(_HEAD_TIME, self._close_unless_there, self.cycle)

        def _close_unless_there(self, last: Any) -> None:
            if self.cycle is last and not self.transport.is_closing():
                self.transport.close()

    return Protocol


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; a ValueError where that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it Nagle's algorithm and the browser's delayed
    # confirmation hold back the end of every page for 40 ms
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ValueError(
            f"Expected a free port at {host}:{port}, could not listen ({error}); choose another --port"
        ) from None
    listening.set_inheritable(True)
    return listening
