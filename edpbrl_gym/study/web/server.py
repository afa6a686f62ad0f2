"""The server of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp

if TYPE_CHECKING:
    import uvicorn

__all__ = ["make_server"]

_GRACE = 10  # seconds that open requests get when the server stops


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server of the pages of a study that keeps no address of anybody."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,  # it would hold addresses of people
            log_level="warning",
            server_header=False,
            proxy_headers=False,  # addresses are neither used nor stored
            timeout_graceful_shutdown=_GRACE,
            lifespan="off",
            ws="none",
        )
    )
