"""What the tests of the judge share: the local server of the examples, questions, pictures."""

import contextlib
import importlib
import io
import json
import socket
import threading
from contextlib import contextmanager

import httpx2  # noqa: F401  what a judge needs: without it the tests that use these tools are skipped
import numpy as np

from edpbrl_gym._log import decode
from edpbrl_gym.oracles.judge import Judge, JudgeQuestion, JudgeSettings

STYLE = "noir, rain at night"
USAGE = {"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 49}
WORDS = ["a sunny beach", "a dark alley", "a bowl of fruit", "a spaceship", "an old castle", "neon signs", "a forest"]


def load_local_judge():
    """The module of the example."""
    return importlib.import_module("examples.local_judge")


def lines(path, kind):
    """The whole lines of one kind in a ledger, open or not; a torn last line is none."""
    found = [decode(line[:-1]) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [line for line in found if line["kind"] == kind]


class WordEncoder:
    """A quick text encoder: a seeded direction for every word, summed."""

    name, dimension, fingerprint = "words", 16, "words"

    def encode(self, texts, *, progress=False):
        rows = []
        for text in texts:
            words = text.replace(",", "").split()
            rows.append(sum(np.random.default_rng(list(word.encode())).normal(size=self.dimension) for word in words))
        rows = np.array(rows, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def local_judge(**options):
    """A server that is quick to start."""
    return load_local_judge().LocalJudge(encoder=options.pop("encoder", WordEncoder()), **options)


@contextmanager
def scripted(play, **options):
    """A local judge that answers a request as ``play(request, handler)`` says: (status, body, headers), or None for it.

    ``server.seen`` are all requests: the path, the headers in small letters, and the JSON.
    """
    with local_judge(**options) as server:
        handler = server._server.RequestHandlerClass
        serve, server.seen = handler.serve, []

        def serve_scripted(self, request):
            server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, request))
            answer = play(request, self)
            return serve(self, request) if answer is None else self.reply(*answer)

        handler.serve = serve_scripted
        yield server


def settings(server, **options):
    """Settings for text questions to a server, with short waits."""
    given = {"model": "local", "style": STYLE, "base_url": server.base_url, "show": "texts", "timeout": 20.0}
    return JudgeSettings(**{**given, **options})


def questions(number, options=4, start=0):
    """Different questions of ``options`` texts."""
    rng = np.random.default_rng(start)
    return [
        JudgeQuestion(
            texts=[f"{WORDS[w]}, number {start + i}" for w in rng.permutation(len(WORDS))[:options]],
            identity=f"q/{start + i}",
        )
        for i in range(number)
    ]


def png(colour, size=(12, 10), kind="PNG"):
    """A picture of one colour."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, format=kind)
    return stream.getvalue()


def completion(message='{"preference": "B"}', finish="stop", usage=USAGE, **more):
    """A chat completion; a text in place of the message is its content."""
    message = message if isinstance(message, dict) else {"content": message}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage, **more}


def ask_one(server, path, **options):
    """The verdict on one question without retries, and the judge's budget."""
    with Judge(settings(server, **{"max_retries": 0, **options}), ledger=path) as judge:
        return judge.ask(questions(1))[0], judge.budget


def requests_of(peer):
    """The bodies of the requests that come over a connection, one after the other."""
    with peer.makefile("rb") as stream:
        head = b""
        while line := stream.readline():
            head += line.lower()
            if line == b"\r\n":
                yield stream.read(int(head.partition(b"content-length: ")[2].split()[0]))
                head = b""


class RawServer:
    """Plays bytes to each connection as soon as it is open: what ``play(peer)`` yields; ``sent`` counts them."""

    def __init__(self, play, small_buffer=False):
        self.play, self.sent, self.opened, self.stopping = play, 0, 0, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        if small_buffer:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self.opened += 1
                self._threads.append(threading.Thread(target=self._serve, args=(peer,), daemon=True))
                self._threads[-1].start()

    def _serve(self, peer):
        with peer, contextlib.suppress(OSError):
            peer.settimeout(20)
            for piece in self.play(peer):
                peer.sendall(piece)
                self.sent += len(piece)

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


def once(pieces):
    """For a ``RawServer``: the pieces, or what they yield, behind the first request; then the connection ends."""

    def play(peer):
        for _ in requests_of(peer):
            yield from pieces() if callable(pieces) else pieces
            return

    return play


def whole(body, *headers):
    """The bytes of an answer with this body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = b"".join(line + b"\r\n" for line in (b"HTTP/1.1 200 OK", b"Content-Type: application/json", *headers))
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data
