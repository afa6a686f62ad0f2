"""Loopback servers that draw, in the shapes of the real ones: they count what they draw, and misbehave as told."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from PIL import Image


def colour(text: str, seed: int = 0) -> tuple[int, int, int]:
    """The colour in which the servers draw a text."""
    red, green, blue = hashlib.sha256(f"{seed} {text}".encode()).digest()[:3]
    return red, green, blue


def picture(text: str, seed: int = 0, size: tuple[int, int] = (16, 16), form: str = "PNG") -> bytes:
    """A picture of one colour."""
    stream = io.BytesIO()
    Image.new("RGB", size, colour(text, seed)).save(stream, format=form)
    return stream.getvalue()


class Reply(NamedTuple):
    """An answer; a body that is no bytes is sent as JSON."""

    status: int
    body: Any = b""
    headers: dict[str, str] = {}


class Call(NamedTuple):
    """A request to draw."""

    server: PictureServer
    number: int  # of the requests to draw, from 0
    document: dict[str, Any]
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return str(self.document["prompt"])

    @property
    def seed(self) -> int:
        return int(self.document.get("seed") or 0)

    def png(self, **options: Any) -> bytes:
        """The right picture, which is counted as drawn and paid."""
        with self.server.lock:
            self.server.paid[(self.text, self.seed)] += 1
        return picture(self.text, self.seed, **{"size": self.server.size_of(self.document), **options})

    def good(self, png: bytes | None = None, **changes: Any) -> dict[str, Any]:
        """The right reply, or one with another picture or other fields."""
        return self.server.reply(self.document, self.png() if png is None else png, **changes)


Play = Callable[[Call], "Reply | Iterable[bytes] | None"]


class PictureServer:
    """A server on a free port; a ``with`` statement ends it.

    Args:
        play: What to answer to a request to draw: a ``Reply``, pieces of bytes for the socket, which is closed behind
            them, or None for the right answer.

    Attributes:
        paid: How often each (text, seed) was drawn.
        calls: The requests to draw.
        got: The paths that were read, with the headers.
        files: What can be read, by path.
    """

    path = ""  # of requests to draw
    kind = ""  # of ``BACK_ENDS``
    base = ""  # path in the address

    def __init__(self, play: Play | None = None) -> None:
        self.play = play
        self.lock = threading.Lock()
        self.paid: Counter[tuple[str, int]] = Counter()
        self.calls: list[Call] = []
        self.got: list[tuple[str, dict[str, str]]] = []
        self.files: dict[str, Reply] = {}
        self.under_way = self.most_at_once = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._post(self)

            def do_GET(self) -> None:
                outer.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                outer._send(self, outer.files.get(self.path, Reply(404, {"detail": "Not Found"})))

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> PictureServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.base}"

    @property
    def spec(self) -> str:
        """The name of the renderer."""
        return f"{self.kind}:{self.url}"

    def size_of(self, document: dict[str, Any]) -> tuple[int, int]:
        return 16, 16

    def reply(self, document: dict[str, Any], png: bytes, **changes: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        document = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        if handler.path != self.base + self.path:
            return self._send(handler, Reply(404, {"detail": "Not Found"}))
        with self.lock:
            headers = {name.lower(): value for name, value in handler.headers.items()}
            call = Call(self, len(self.calls), document, headers)
            self.calls.append(call)
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            answer = None if self.play is None else self.play(call)
            self._send(handler, Reply(200, call.good()) if answer is None else answer)
        finally:
            with self.lock:
                self.under_way -= 1

    def _send(self, handler: BaseHTTPRequestHandler, answer: Reply | Iterable[bytes]) -> None:
        if not isinstance(answer, Reply):
            handler.close_connection = True
            for piece in answer:
                handler.wfile.write(piece)
                handler.wfile.flush()
            return
        is_bytes = isinstance(answer.body, bytes)
        body = answer.body if is_bytes else json.dumps(answer.body).encode()
        handler.send_response(answer.status)
        headers = {"Content-Type": "image/png" if is_bytes else "application/json", **answer.headers}
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


class OpenAIServer(PictureServer):
    """POST /v1/images/generations."""

    kind, base, path = "openai", "/v1", "/images/generations"

    @property
    def spec(self) -> str:
        return f"{super().spec}#flux"

    def size_of(self, document):
        return tuple(map(int, document["size"].split("x"))) if "size" in document else (16, 16)

    def reply(self, document, png, *, pictures=1, **changes):
        return {"created": 1, "data": [{"b64_json": base64.b64encode(png).decode()} | changes] * pictures}


class A1111Server(PictureServer):
    """POST /sdapi/v1/txt2img; GET /sdapi/v1/options."""

    kind, path = "a1111", "/sdapi/v1/txt2img"

    def __init__(self, play: Play | None = None) -> None:
        super().__init__(play)
        self.files["/sdapi/v1/options"] = Reply(200, {"sd_model_checkpoint": "sd/dream.safetensors [879db5]"})

    def size_of(self, document):
        return document.get("width", 16), document.get("height", 16)

    def reply(self, document, png, *, pictures=1, info=None, **changes):
        told = {"prompt": document["prompt"], "seed": document["seed"], "sd_model_name": "dream"} | (info or {})
        images = [base64.b64encode(png).decode()] * pictures
        return {"images": images, "parameters": document, "info": json.dumps(told)} | changes


SERVERS: tuple[type[PictureServer], ...] = (OpenAIServer, A1111Server)


def drip(piece: bytes = b" ", times: int = 200) -> Iterator[bytes]:
    """The head of an answer, and a little of it now and then, for 10 s."""
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    for _ in range(times):
        time.sleep(0.05)
        yield piece
