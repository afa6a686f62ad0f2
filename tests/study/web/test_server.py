"""The socket that the pages are served on."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

from edpbrl_gym.study.web.server import listen


def test_the_end_of_a_page_does_not_wait_for_the_browser_to_confirm_its_beginning():
    """Nagle's algorithm holds it back otherwise, for as long as the browser's system delays the confirmation."""

    async def is_sent_at_once():
        found = asyncio.get_running_loop().create_future()

        async def answer(reader, writer):
            accepted = writer.get_extra_info("socket")
            found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as place:
            async with await asyncio.start_server(answer, sock=place):
                _, writer = await asyncio.open_connection(*place.getsockname())
                writer.close()
                return await asyncio.wait_for(found, 30)

    with ThreadPoolExecutor(1) as pool:  # other tests leave a loop in this thread
        assert pool.submit(asyncio.run, is_sent_at_once()).result() == 1
