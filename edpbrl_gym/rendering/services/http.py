"""``HttpService``: what all servers that draw have in common: settings, attempts, waits, and errors of one line."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import numpy as np

from edpbrl_gym._addresses import OPENAI_KEY, check_address, check_key_variable, key_headers
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._http.errors import ServerError, error_of_success, parse_json, read_error
from edpbrl_gym._http.waits import LONGEST_WAIT, announced_limit, backoff, in_words, wait_before_next
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.rendering.base import Drawn, NotDrawn, Service
from edpbrl_gym.rendering.cache import encode_png

if TYPE_CHECKING:
    from edpbrl_gym._http.transport import HttpAnswer, Poster

__all__ = ["HttpService", "Refused", "base64_bytes", "only_one", "options_from"]

MAX_REPLY = 40_000_000  # bytes of a reply; a picture of 4 megapixels has about 10 million in base64
_LOST = (408, 499, 502, 504, 520, 522, 523, 524)  # a gateway gave up; what is behind it may go on, and be paid
_SHORTEST_LIMIT = 0.1  # seconds; a shorter wait is only advice on how to retry
_NOBODY = ("ConnectionRefusedError", "gaierror")
_AGAIN = "run this again then: what was drawn is kept"
_log = logging.getLogger(__name__)


class Refused(NotDrawn):
    """The server draws nothing of this text, for what it is about."""


class HttpService(Service):
    """A server that draws; a class of one kind defines ``request`` and ``picture``, which call ``ask``.

    Args:
        url: Its address; parameters in it are sent with every request. None may be a key.
        model: Name of its model (None: the server's own).
        height: Height in pixels (None: the server's own).
        width: Width in pixels, with ``height`` or without both.
        batch_size: Number of pictures that it draws at once.
        price: Of one picture (None: unknown; 0: nothing is paid, so that lost requests are repeated also where a key
            is sent).
        api_key_variable: Environment variable with its key (None: none is sent).
        timeout: Seconds for a whole attempt (connecting, drawing, the answer up to its last byte).
        max_retries: Maximum number of retries after a lost connection, a timeout, 408, 409, 429 or 5xx. An attempt
            that may have been paid is not retried.
        max_wait: Maximum number of seconds for which a picture waits for limits that the server announces.

    Raises:
        ModuleNotFoundError: The extra ``pictures`` is not installed.
        ValueError, TypeError: A value is wrong, or the key is missing.
    """

    example = "http://127.0.0.1:8000"
    is_paid = False  # whether a request that may have been heeded is never sent again, even where nothing is paid
    has_login = False  # whether a key may be USER:PASSWORD

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        height: int | None = None,
        width: int | None = None,
        batch_size: int = 4,
        price: float | None = None,
        api_key_variable: str | None = None,
        timeout: float = 300.0,
        max_retries: int = 4,
        max_wait: float = 3600.0,
    ) -> None:
        check_installed(Need("httpx2", "pictures of a server", "pictures"))
        from edpbrl_gym._http.transport import Poster, is_loopback

        self.key_variable = check_key_variable(api_key_variable)
        self._base = check_address(url, "the address of a renderer", self.example, self.key_variable or OPENAI_KEY)
        self.url = self._base.geturl()
        self.model = None if model is None else str(model)
        if (height is None) != (width is None):
            raise ValueError(f"Expected height and width, or none of them, got height={height} and width={width}")
        if height is not None and width is not None:
            self.size = check_count(width, "width", minimum=8), check_count(height, "height", minimum=8)
        self.batch_size = check_count(batch_size, "batch_size")
        self.price = None if price is None else check_number(price, "price", minimum=0.0)
        self.timeout = check_number(timeout, "timeout (seconds)", minimum=0.0, exclusive=True)
        self.max_retries = check_count(max_retries, "max_retries", minimum=0)
        self.max_wait = check_number(max_wait, "max_wait (seconds)", minimum=0.0)
        account = key_headers(self.key_variable, self.url)
        self._secrets = [value.partition(" ")[2] or value for value in account.values()]
        if self.has_login and self._secrets and ":" in self._secrets[0]:
            self._secrets.append(base64.b64encode(self._secrets[0].encode()).decode())
            account["Authorization"] = f"Basic {self._secrets[-1]}"
        self._paid = self.is_paid or (bool(account) if price is None else price > 0)
        headers = {"User-Agent": "edpbrl-gym", **account}
        if self._paid:  # on a connection that is kept, a lost request would be sent again
            headers["Connection"] = "close"
        self._poster = Poster(self.url, headers, self.timeout, MAX_REPLY)
        self.name = f"{self.model or 'the model'} at {self.url}"
        self._told_until, self._answered = 0.0, 0
        if self._base.scheme == "http" and not is_loopback(self.url):
            key = f" and the key in {self.key_variable}" if self.key_variable else ""
            warnings.warn(
                f"Prompts{key} go to {self.url} without encryption, readable by every machine on the way; use https, "
                "or a tunnel to this machine",
                stacklevel=3,
            )

    @abstractmethod
    def request(self) -> Mapping[str, Any]:
        """All that is sent for every picture, without text and seed; JSON-able."""

    @abstractmethod
    def picture(self, text: str, seed: int, stop: threading.Event) -> bytes:
        """The bytes of one picture, or of what came in its place. Raises what ``ask`` does."""

    def describe(self) -> dict[str, Any]:
        settings = {"model": self.model or self.url, "url": self.url, "request": dict(self.request())}
        return settings | {"seeded": self.seeded}

    def draw_one(self, text: str, seed: int, stop: threading.Event) -> Drawn:
        try:
            return Drawn(self.picture(text, seed, stop))
        except Refused as error:
            _log.info("%s draws nothing of a text: %s", self.name, error)
            width, height = self.size or (64, 64)
            return Drawn(encode_png(np.zeros((height, width, 3), np.float32)), flagged=True)

    def close(self) -> None:
        self._poster.close()

    def address(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Address of a path, such as "/images/generations", behind that of the server; a whole one as it is."""
        if "://" in path:
            return path
        parameters = "&".join(filter(None, [self._base.query, urlencode(query or {}, quote_via=quote)]))
        whole = quote(self._base.path.rstrip("/") + path, safe="/%:@!$&'()*+,;=~")
        return self._base._replace(path=whole, query=parameters).geturl()

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(
        self,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        stop: threading.Event,
        query: Mapping[str, str] | None = None,
        text: str = "",
        number: int = 0,
        elsewhere: Poster | None = None,
    ) -> bytes:
        """The body of the answer to a request, which is repeated after errors that pass.

        Args:
            path: What follows the address, or a whole one.
            document: What is posted as JSON (None: GET). If a key is sent or a picture has a price, this is not
                repeated when it may have been drawn.
            stop: Ends the waits.
            query: Parameters of the address.
            text: The text of the picture, which no message may repeat.
            number: The seed, so that requests of different pictures differ where no seed is sent.
            elsewhere: Client for another server (None: that of this one, with its key).

        Raises:
            Refused: A content filter has declined the text.
            NotDrawn: There is no picture of this text.
            ConnectionError: There would be none of any text.
        """
        body = None if document is None else json.dumps(document).encode("ascii")
        address = self.address(path, query)
        retries, refused, waited = 0, 0, 0.0
        while True:
            answered, announced = self._answered, None
            key = hashlib.sha256(f"{number} {refused} ".encode("ascii") + (body or b"")).hexdigest()
            if elsewhere is None:
                answer, problem = self._attempt(address, body, key)
            else:
                answer, problem = self._send(elsewhere, address, body, key)
            wait: float | None = backoff(retries)
            if answer is not None:
                status = error_of_success(answer.body) if answer.status < 300 and answer.body else None
                if answer.body is None:
                    raise NotDrawn(f"it is too large, or packed: at most {MAX_REPLY:,} bytes are read")
                if answer.status < 300 and status is None:
                    self._answered += 1
                    return answer.body
                status = status or answer.status
                refused += 1
                error = read_error(status, answer.body)
                problem = f"{status}{self._said(error, answer.body, text)}"
                if body is not None:
                    self._check_access(status, error, problem)
                    if self._paid and status in _LOST:
                        raise NotDrawn(_lost(problem))
                wait = wait_before_next(type(answer)(status, answer.headers, answer.body), retries)
                announced = announced_limit(answer, error) if status == 429 else None
            if wait is None:
                raise NotDrawn(f"it answered {problem}")
            is_limit = announced is not None and announced >= _SHORTEST_LIMIT and self.max_retries > 0
            if announced is not None and is_limit:
                self._tell_limit(announced, waited, problem)
                waited += wait
            if retries == self.max_retries:
                raise NotDrawn(f"{problem}, {retries + 1} times in a row; the server is busy or broken, see its log")
            if stop.wait(wait):
                raise NotDrawn(f"stopped after {problem}")
            # a limit counts where the whole wait has passed and nobody was answered in the meantime
            retries += not (is_limit and (wait == LONGEST_WAIT or self._answered > answered))

    def _attempt(self, address: str, body: bytes | None, key: str) -> tuple[HttpAnswer | None, str]:
        """The answer to one attempt, None if none came; and what went wrong."""
        return self._send(self._poster, address, body, key)

    def _send(self, poster: Poster, address: str, body: bytes | None, key: str) -> tuple[HttpAnswer | None, str]:
        from edpbrl_gym._http.transport import NoAnswerError

        try:
            if body is None:
                return poster.get(address), ""
            return poster.post(body, lambda: None, {"Idempotency-Key": key}, address), ""
        except NoAnswerError as error:
            problem = f"no complete answer ({error.status})"
            if body is not None:
                if error.final:
                    raise ConnectionError(
                        f"Expected {self.url} to prove its identity, it has {error.status}; check the address, or name "
                        "the file of the certificates to trust in the environment variable SSL_CERT_FILE"
                    ) from None
                if not error.sent and not self._answered and error.status in _NOBODY:
                    raise ConnectionError(
                        f"Expected a server at {self.url}, none answers there ({error.status}); start it, or check the "
                        "address"
                    ) from None
                if error.sent and self._paid:
                    raise NotDrawn(_lost(problem)) from None
            return None, problem

    def _check_access(self, status: int, error: ServerError, problem: str) -> None:
        """Raise what ends the work, since no text would be drawn, or what is about this text."""
        expected = ""
        if 300 <= status < 400:
            expected = "to answer requests itself, it redirects elsewhere ({}); prompts and keys go to no other "
            expected += "address, so give the server's real one"
        elif error.no_quota:
            expected = "to have something left on the account, it answered {}; add credit or raise its limit, and "
            expected += _AGAIN
        elif error.filtered:
            raise Refused(problem)
        elif status in (401, 403, 407):
            expected = "to let this program in, it answered {}; " + (
                "put its key into an environment variable and name that by api_key_variable"
                if self.key_variable is None
                else f"check the key in the environment variable {self.key_variable} and what it may use"
            )
        elif status in (404, 405):
            expected = f"to draw pictures, it answered {{}}; check the address (such as {self.example})"
            expected += "" if self.model is None else " and the name of the model"
        if expected:
            raise ConnectionError(f"Expected {self.url} {expected.replace('{}', problem, 1)}")

    def _tell_limit(self, announced: float, waited: float, problem: str) -> None:
        """Tell the user of a limit that is being waited for; raise if it lasts too long."""
        if waited + announced > self.max_wait:
            raise ConnectionError(
                f"Expected {self.url} to take requests again within {in_words(self.max_wait)} (max_wait), its limit "
                f"({problem}) lasts for another {in_words(announced)}; {_AGAIN}"
            )
        now = time.monotonic()
        if announced >= 1.0 and now >= self._told_until:
            self._told_until = now + max(announced, 30.0)
            _log.warning("%s has a limit (%s): waiting for another %s", self.url, problem, in_words(announced))

    def explain(self, body: bytes) -> str:
        """What the body of an error says, where a kind of server has a form of its own; "" for the usual ones."""
        return ""

    def _said(self, error: ServerError, body: bytes | None, text: str) -> str:
        """What the server says, without what it repeats of keys and text, as the end of a sentence."""
        if own := self.explain(body or b""):
            error = ServerError(error.status, message=" ".join(own.split()))
        said = error.shown([*self._secrets, *text.splitlines()])
        return f"; the server says: {said}" if said else ""

    def ask_json(self, path: str, document: Mapping[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        """The object in the answer to a request; arguments and errors are those of ``ask``."""
        body = self.ask(path, document, **arguments)
        content = parse_json(body)
        if not isinstance(content, dict):
            start = body.lstrip()[:1]
            what = "a page (HTML)" if start == b"<" else f"{len(body):,} bytes that are none"
            raise NotDrawn(f"Expected JSON from {self.address(path)}, got {what}; check the address")
        return content

    def picture_at(self, url: str, stop: threading.Event) -> bytes:
        """What is at an address that the server gave: of its own, or another one that is https, without the key there.

        Raises NotDrawn where it can't be read.
        """
        from edpbrl_gym._http.transport import Poster, is_private

        elsewhere = None
        try:
            whole = urljoin(self.url.rstrip("/") + "/", url)
            there = urlsplit(whole)
            if (there.scheme, there.netloc) != (self._base.scheme, self._base.netloc):
                if there.scheme != "https" or "@" in there.netloc or is_private(whole):
                    raise ValueError
                elsewhere = Poster(whole, {}, self.timeout, MAX_REPLY)
        except (ValueError, TypeError):
            raise NotDrawn("Expected a picture at the server itself or at an https address, got another one") from None
        try:
            return self.ask(whole, stop=stop, elsewhere=elsewhere)
        except NotDrawn as error:
            raise NotDrawn(f"the picture was drawn, but it can't be read where the server put it: {error}") from None
        finally:
            if elsewhere is not None:
                elsewhere.close()


def base64_bytes(text: object) -> bytes:
    """What a text in base64 holds, which may be a "data:" address; NotDrawn if it is none."""
    try:
        if not isinstance(text, str) or not text:
            raise ValueError
        head, comma, rest = text.partition(",")
        return base64.b64decode("".join((rest if comma and head.startswith("data:") else text).split()), validate=True)
    except (ValueError, binascii.Error):
        raise NotDrawn("Expected a picture in base64, got something else") from None


def only_one(pictures: object) -> Any:
    """The one picture of a list; NotDrawn if there is none, or more."""
    listed = pictures if isinstance(pictures, list) else []
    if len(listed) != 1:
        raise NotDrawn(f"Expected one picture in the reply, got {len(listed) or 'none'}")
    return listed[0]


def _lost(problem: str) -> str:
    return (
        f"{problem}; it may have been drawn and billed, so it is not asked for again by itself: the same call does, "
        "with the same Idempotency-Key"
    )


def options_from(extra: str | dict[str, Any] | None) -> dict[str, Any]:
    """Further fields of a request, given as an object or its JSON; ValueError if they are none."""
    fields = parse_json(extra.encode("utf-8", "replace")) if isinstance(extra, str) else extra or {}
    if not isinstance(fields, dict):
        raise ValueError(f"Expected extra as a JSON object, such as '{{\"true_cfg_scale\": 4}}', got {extra!r}")
    return fields
