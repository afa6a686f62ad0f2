"""A judge on this machine
=======================

A judge on this machine: a chat server that speaks the OpenAI protocol, without a language model and without a key.

It reads the style guidance and the candidates and picks the one whose sentence embedding is nearest the style's, with
noise. It replaces a paid model in tests, in trial runs of a study and where there is no network; it can also
simulate faults. The answer to a question is always the same: it depends on the question and the seed only.

On the command line::

    python examples/local_judge.py --port 8399  # serve until Ctrl-C; point a judge at http://127.0.0.1:8399/v1
    python examples/local_judge.py --demo       # ask one question through edpbrl_gym's client, and stop
"""
# sphinx_gallery_thumbnail_path = "llm-styles.png"

import base64
import hashlib
import io
import json
import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import tyro

from edpbrl_gym.features import TextEncoder, load_encoder

HTTP_FAULTS = ("503", "429", "timeout", "broken_body")
ANSWER_FAULTS = ("truncated", "wrong_label", "empty", "refused")
# a picture is judged by the distance of its mean colour from the colours that match the style
COLOURS = {
    "red": (200, 30, 30),
    "orange": (240, 140, 30),
    "yellow": (245, 220, 60),
    "green": (40, 140, 50),
    "blue": (40, 80, 200),
    "purple": (120, 40, 150),
    "brown": (120, 75, 40),
    "black": (15, 15, 15),
    "grey": (128, 128, 128),
    "white": (240, 240, 240),
}


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the server."""

    port: int = 8399
    """port on 127.0.0.1; 0 takes a free one"""
    seed: int = 0
    """seed of the noise and of the faults"""
    scale: float = 30.0
    """weight of the similarity against the noise (inverse temperature)"""
    position_bias: float = 0.0
    """advantage of the first label, as of careless judges"""
    schema: Literal["supported", "refused", "ignored"] = "supported"
    """reaction to a JSON schema: follow it, answer 400, or answer in a sentence"""
    faults: dict[str, float] = field(default_factory=dict)
    """probability of each fault: 503 429 timeout broken_body truncated wrong_label empty refused"""
    demo: bool = False
    """ask one question and stop"""


# %%
# What a question says, and how the judge answers it.
def uniform(*parts: Any) -> float:
    """A number in (0, 1) that is a function of the parts."""
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return (int.from_bytes(digest[:7], "big") + 0.5) / 2**56


@dataclass(frozen=True)
class Question:
    """A question as the server reads it: candidates by label, texts or the mean colours of pictures."""

    style: str
    labels: tuple[str, ...]
    candidates: tuple[str, ...]
    pictures: tuple[tuple[float, float, float], ...] | None = None

    @property
    def identity(self) -> str:
        """Identity of the question, whatever the order of the labels."""
        return json.dumps([self.style, sorted(self.candidates)])


def read_question(messages: list[dict[str, Any]]) -> Question:
    """Find the style, the labels and the candidates in the messages; pictures are decoded."""
    style = messages[0]["content"].partition("Style guidance:\n")[2].strip()
    content = messages[1]["content"]
    if isinstance(content, str):
        options = re.findall(r"^([A-Z]): (.*)$", content, flags=re.M)
        return Question(style, tuple(label for label, _ in options), tuple(text for _, text in options))
    labels, candidates, pictures = [], [], []
    for part in content:
        if part["type"] == "text" and re.fullmatch(r"[A-Z]:", part["text"]):
            labels.append(part["text"][0])
        elif part["type"] == "image_url":
            data = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"), validate=True)
            candidates.append(hashlib.sha256(data).hexdigest())
            pictures.append(mean_colour(data))
    return Question(style, tuple(labels), tuple(candidates), tuple(pictures))


def mean_colour(png: bytes) -> tuple[float, float, float]:
    """Mean red, green and blue of a picture, 0 to 255."""
    from PIL import Image

    with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
        red, green, blue = np.asarray(picture.convert("RGB"), dtype=float).reshape(-1, 3).mean(axis=0)
    return float(red), float(green), float(blue)


class Embeddings:
    """Sentence embeddings kept in memory; texts of requests that arrive together are encoded together."""

    def __init__(self, encoder: TextEncoder | None) -> None:
        self._encoder = encoder
        self._rows: dict[str, Any] = {}
        self._pending: set[str] = set()
        self._encoding = threading.Lock()

    def __call__(self, texts: list[str]) -> Any:
        """Rows for the texts, (n, d)."""
        missing = [text for text in texts if text not in self._rows]
        if missing:
            self._pending.update(missing)  # atomic; the next encoding includes them
            with self._encoding:
                batch = [text for text in list(self._pending) if text not in self._rows]
                if batch:
                    if self._encoder is None:
                        self._encoder = load_encoder("minilm", cache=False)
                    self._rows.update(zip(batch, self._encoder.encode(batch), strict=True))
                self._pending.difference_update(batch)
        return np.stack([self._rows[text] for text in texts])


# %%
# The server, and the faults that it can simulate.
class QuietServer(ThreadingHTTPServer):
    """A server that ignores clients that disconnect."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report only errors of the server itself."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class LocalJudge:
    """The server; ``with LocalJudge(port=0) as server: server.base_url``.

    Attributes:
        requests: requests received, refused ones included.
        tokens: tokens that a real server would bill: those of every answer, read by the client or not.
        asked: every question answered in full, in the order of answers, repetitions included.
        injected: number of times each fault occurred.
        idempotent: answer a request with the Idempotency-Key of an earlier one as that one, and bill it once.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        faults: dict[str, float] | None = None,
        seed: int = 0,
        scale: float = 30.0,
        position_bias: float = 0.0,
        schema: Literal["supported", "refused", "ignored"] = "supported",
        encoder: TextEncoder | None = None,
        retry_after: float = 0.05,
        hang: float = 30.0,
        delay: float = 0.0,
        api_key: str | None = None,
        report_usage: bool = True,
        idempotent: bool = False,
    ) -> None:
        unknown = set(faults or {}) - {*HTTP_FAULTS, *ANSWER_FAULTS}
        if unknown:
            raise ValueError(f"Expected faults among {(*HTTP_FAULTS, *ANSWER_FAULTS)}, got {sorted(unknown)}")
        self.faults = dict(faults or {})
        self.seed, self.scale, self.position_bias = seed, scale, position_bias
        self.schema, self.retry_after, self.hang, self.delay = schema, retry_after, hang, delay
        self.api_key, self.report_usage = api_key, report_usage
        self.requests = 0
        self.tokens = 0
        self.most_at_once = 0
        self.asked: list[Question] = []
        self.injected: Counter[str] = Counter()
        self.embed = Embeddings(encoder)
        self.stopping = threading.Event()
        self.idempotent = idempotent
        self._kept: dict[str, tuple[threading.Event, dict[str, Any]]] = {}
        self._attempts: Counter[str] = Counter()
        self._open_requests = 0
        self._lock = threading.Lock()
        self._server = QuietServer(("127.0.0.1", port), type("OwnHandler", (Handler,), {"judge": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def base_url(self) -> str:
        """The ``base_url`` for a judge."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "LocalJudge":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def begin(self) -> None:
        """Count a new request."""
        with self._lock:
            self.requests += 1
            self._open_requests += 1
            self.most_at_once = max(self.most_at_once, self._open_requests)

    def bill(self, tokens: int) -> None:
        """Count the tokens of an answer."""
        with self._lock:
            self.tokens += tokens

    def end(self) -> None:
        """Count a finished request."""
        with self._lock:
            self._open_requests -= 1

    def kept(self, key: str) -> dict[str, Any] | None:
        """The answer to an earlier request with this key, awaited where it is under way; None for a new key."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (threading.Event(), {})
                return None
        known, answer = self._kept[key]
        known.wait()
        return answer

    def keep(self, key: str, answer: dict[str, Any]) -> None:
        """Keep the answer to a request with this key."""
        known, kept = self._kept[key]
        kept.update(answer)
        known.set()

    def forget(self, key: str) -> None:
        """Take a request with this key as new again."""
        with self._lock:
            del self._kept[key]

    def http_fault(self, question: Question) -> str | None:
        """The fault of this attempt at a question, drawn independently for every attempt."""
        with self._lock:
            attempt = self._attempts[question.identity]
            self._attempts[question.identity] += 1
        return self._draw(HTTP_FAULTS, question, attempt)

    def _draw(self, faults: tuple[str, ...], question: Question, attempt: int) -> str | None:
        remaining = uniform("fault", self.seed, question.identity, faults[0], attempt)
        for name in faults:
            remaining -= self.faults.get(name, 0.0)
            if remaining < 0:
                with self._lock:
                    self.injected[name] += 1
                return name
        return None

    def choose(self, question: Question) -> str:
        """The label of the best candidate: scale * similarity + Gumbel noise, a function of the question."""
        if question.pictures is None:
            rows = self.embed([question.style, *question.candidates])
            similarity = rows[1:] @ rows[0]
        else:
            similarity = self._colour_match(question.style, np.array(question.pictures))
        noise = [-np.log(-np.log(uniform("noise", self.seed, question.identity, text))) for text in question.candidates]
        utility = self.scale * similarity + np.array(noise)
        utility[0] += self.position_bias
        return question.labels[int(np.argmax(utility))]

    def _colour_match(self, style: str, pictures: Any) -> Any:
        rows = self.embed([style, *COLOURS])
        weights = np.exp(20 * (rows[1:] @ rows[0]))
        target = weights @ np.array(list(COLOURS.values()), dtype=float) / weights.sum()
        return -np.linalg.norm(pictures - target, axis=1) / 255

    def answer(self, question: Question, schema: bool) -> tuple[str | None, str | None, str]:
        """Content, refusal and finish reason of the answer."""
        fault = self._draw(ANSWER_FAULTS, question, 0)
        with self._lock:
            self.asked.append(question)
        if fault == "refused":
            return None, "I can't help with that.", "stop"
        if fault == "empty":
            return "", None, "stop"
        label = "Z" if fault == "wrong_label" else self.choose(question)
        text = json.dumps({"preference": label})
        if fault == "truncated":
            return text[: len(text) // 2], None, "length"
        return (text if schema else f"The best one is:\n```json\n{text}\n```"), None, "stop"

    def complete(self, request: dict[str, Any], question: Question, *, schema: bool) -> dict[str, Any]:
        """The body of the answer to a request, which is billed."""
        content, refusal, finish = self.answer(question, schema)
        message = {"role": "assistant", "content": content, "refusal": refusal}
        answer = {
            "id": "local",
            "object": "chat.completion",
            "created": 0,
            "model": f"{request['model']}-local",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        read, written = count_tokens(request["messages"]), len(content or "") // 4 + 1
        self.bill(read + written)
        if self.report_usage:
            answer["usage"] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return answer


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of a judge; each server has a class of its own."""

    judge: "LocalJudge"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet an answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Read a request, and serve it."""
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client is gone
            self.close_connection = True
            return
        self.judge.begin()
        try:
            self.serve(json.loads(body))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.judge.end()

    def reply(
        self, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None, *, broken: bool = False
    ) -> None:
        """Send an answer, or the first half of one."""
        data = json.dumps(answer).encode()
        if broken:
            data = data[: len(data) // 2]
        self.send_response_only(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Send an error."""
        self.reply(status, {"error": {"message": message, "type": "local", "code": None}}, headers)

    def serve(self, request: dict[str, Any]) -> None:
        """Answer a question, with the faults that are drawn for it."""
        if self.judge.api_key is not None and self.headers.get("Authorization") != f"Bearer {self.judge.api_key}":
            return self.refuse(401, f"wrong key: {self.headers.get('Authorization')}")
        if not self.path.endswith("/chat/completions"):
            return self.refuse(404, f"no such path: {self.path}")
        schema = "response_format" in request
        if schema and self.judge.schema == "refused":
            return self.refuse(400, "response_format json_schema is not supported")
        question = read_question(request["messages"])
        key = self.headers.get("Idempotency-Key") if self.judge.idempotent else None
        if key is not None and (answered := self.judge.kept(key)) is not None:
            return self.reply(200, answered)
        fault = self.judge.http_fault(question)
        if key is not None and fault in ("503", "429", "timeout"):
            self.judge.forget(key)
        if fault == "503":
            return self.refuse(503, f"overloaded while judging {question.candidates}")
        if fault == "429":
            return self.refuse(429, "too many requests", {"Retry-After": str(self.judge.retry_after)})
        if fault == "timeout":  # like a slow model: it does the work, but the client has stopped waiting
            self.judge.bill(count_tokens(request["messages"]) + 6)
            self.judge.stopping.wait(self.judge.hang)
            self.close_connection = True
            return None
        if self.judge.delay:
            self.judge.stopping.wait(self.judge.delay)
        answer = self.judge.complete(request, question, schema=schema and self.judge.schema == "supported")
        if key is not None:
            self.judge.keep(key, answer)
        return self.reply(200, answer, broken=fault == "broken_body")


def count_tokens(messages: list[dict[str, Any]]) -> int:
    """Approximate tokens of the messages: four letters per token, 85 per picture."""
    total = 0
    for message in messages:
        parts = message["content"] if isinstance(message["content"], list) else [message["content"]]
        for part in parts:
            text = part if isinstance(part, str) else part.get("text")
            total += 85 if text is None else len(text) // 4 + 1
    return total


# %%
# What can be done with it.
def demo(server: LocalJudge) -> None:
    """Ask one question through the library's client."""
    from edpbrl_gym.oracles.judge import Judge, JudgeQuestion, JudgeSettings

    settings = JudgeSettings(
        model="local", style="noir, black and white, rain at night", base_url=server.base_url, show="texts"
    )
    candidates = ["a sunny beach", "a dark alley in the rain", "a bowl of fruit", "a spaceship"]
    with TemporaryDirectory() as folder, Judge(settings, ledger=Path(folder) / "ledger.jsonl") as judge:
        verdict = judge.ask([JudgeQuestion(texts=candidates, identity="demo")])[0]
        choice = "nothing" if verdict.choice is None else candidates[verdict.choice]
        print(f"style: {settings.style}\nverdict: {choice} ({verdict.reason}, {verdict.usage.total} tokens)")


def main(args: Args) -> None:
    """Serve until Ctrl-C."""
    with LocalJudge(
        0 if args.demo else args.port,
        faults=args.faults,
        seed=args.seed,
        scale=args.scale,
        position_bias=args.position_bias,
        schema=args.schema,
    ) as server:
        if args.demo:
            return demo(server)
        print(f"judging at {server.base_url}; Ctrl-C stops it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"{server.requests} requests")


# %%
# Run it, here with ``--demo``.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
