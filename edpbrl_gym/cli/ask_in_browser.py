"""`edpbrl ask` in the browser: the server of its pages, from the command to the files at the end."""

from __future__ import annotations

import math
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edpbrl_gym.cli.ask_folder import OPENING, SESSION, TASTE, AskSettings, begun, open_session, write_settings
from edpbrl_gym.cli.console import bad_arguments, command, output, shown, sigterm_as_interrupt

if TYPE_CHECKING:
    from edpbrl_gym.asking.ending import Ending
    from edpbrl_gym.asking.pool_pictures import PoolPictures
    from edpbrl_gym.cli.ask import Ask
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.pictures.pool import PicturePool
    from edpbrl_gym.rendering import CachedRenderer
    from edpbrl_gym.session import Session
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["ask_in_browser", "has_display"]

_PATIENCE = 4.0  # seconds until the session is made, if nobody has seen the first question by then
_GRACE = 1  # seconds that open requests get when the server stops


class _Asked:
    """What is asked about: a pool, who draws it, and how its items are encoded."""

    def __init__(self, options: Ask, settings: AskSettings) -> None:
        from edpbrl_gym.study.pictures import Pictures, picture_shape

        self.options, self.settings = options, settings
        self.stopped = False
        self.whole: Vocabulary | None = None  # of which the pool are prompts
        self.existing: PicturePool | None = None  # where the pictures are those of a folder
        self.renderer: CachedRenderer | None = None
        self.pictures: PoolPictures | None = None
        self.pool = self._pool()
        if settings.renderer is not None:
            from edpbrl_gym.asking.pool_pictures import PoolPictures
            from edpbrl_gym.workers import LocalProcesses

            drawing = options.drawing
            workers = LocalProcesses() if settings.renderer == "posters" else None  # drawing them holds Python's lock
            self.renderer = drawing.load_as(settings.renderer, settings.renderer_options or {}, workers)
            drawn = Pictures(self.renderer, settings.seed)
            exist = str(settings.renderer).startswith("folder:")
            shape = "mixed" if exist else picture_shape(self.renderer.describe())
            self.pictures = PoolPictures(drawn, self.pool.tokens[0], paid=self._paid(self.renderer), shape=shape)

    def _pool(self) -> Vocabulary:
        from edpbrl_gym.pictures.pool import load_pictures, prompt_pool
        from edpbrl_gym.vocabulary import load_vocabulary

        settings = self.settings
        if settings.pictures is not None:
            found = load_pictures(settings.pictures)
            for name, why in found.left_out.items():
                output().print(f" Left out: {name}: {why}", soft_wrap=True)
            self.existing = found
            return found.vocabulary
        self.whole = load_vocabulary(settings.vocabulary)
        if settings.pool is None:
            return self.whole
        if settings.subject is not None:
            self.whole = self.whole.with_subject(settings.subject)
        return prompt_pool(self.whole, min(settings.pool, math.prod(self.whole.sizes)), settings.seed)

    def _paid(self, renderer: CachedRenderer) -> Any:
        """What a person is asked before a service draws."""
        from edpbrl_gym.asking.pool_pictures import Paid
        from edpbrl_gym.rendering.loading import BACK_ENDS

        name, price = renderer.renderer.name, renderer.renderer.price
        kind = str(self.settings.renderer).partition(":")[0]
        if price is None and not (kind in BACK_ENDS and BACK_ENDS[kind].is_address):
            return None
        texts = self.pool.tokens[0]
        return Paid(name, len(texts) + self.options.count, price)

    @property
    def is_pool(self) -> bool:
        """Whether the questions are about the items of a pool."""
        return self.settings.pool is not None or self.settings.pictures is not None

    @property
    def by_items(self) -> bool:
        """Whether only what was drawn has features."""
        return self.settings.features in ("picture", "both")

    def encoder(self) -> TextEncoder:
        """The encoder of the items; those that have no picture to learn from are named, and leave the pool."""
        from edpbrl_gym.features import load_encoder

        if not self.by_items:
            return load_encoder(self.settings.encoder)
        from edpbrl_gym.pictures.drawn import drawn_by, features_of

        if self.existing is not None:
            drawn = self.existing.encoder()
        else:
            assert self.renderer is not None
            self._leave_out()
            drawn = drawn_by(self.renderer, seed=self.settings.seed)
        if self.settings.features == "picture":
            return drawn
        return features_of("both", load_encoder(self.settings.encoder), drawn)

    def _leave_out(self) -> None:
        """Draw the pool, before the encoder would keep the renderer from the page; forget prompts without a picture."""
        pictures = self.pictures
        assert pictures is not None
        goes_on = (self.options.out / SESSION).exists()
        known = self.settings.left_out or [] if goes_on else []
        texts = [text for text in self.pool.tokens[0] if text not in known]
        refused = pictures.wait(texts, lambda: self.stopped and pictures.paid is not None, soon=False)
        if pictures.paid is not None:
            raise ValueError(
                f"Expected {len(texts)} pictures to learn from, got none so far; agree to them on the page"
            )
        if not goes_on:
            for text, why in refused.items():
                output().print(f" Left out: {text}: {why}", soft_wrap=True)
            known = list(refused)
            self.settings = replace(self.settings, left_out=known or None)
            write_settings(self.options.out, self.settings)
        kept = tuple(text for text in self.pool.tokens[0] if text not in known)
        self.pool = type(self.pool)(self.pool.names, (kept,))

    def conclude(self, session: Session, reading: AbstractContextManager[object]) -> Ending | None:
        """Write what was learnt."""
        from edpbrl_gym.asking.ending import conclude

        return conclude(
            session,
            self.options.out,
            count=self.options.count,
            whole=None if self.settings.pool is None else self.whole,
            by_items=self.by_items,
            wildcards=True,
            reading=reading,
        )

    def publish(self, ending: Ending, stopping: Callable[[], bool]) -> None:
        """Write what needs pictures, when they are drawn or there is no time to wait for them."""
        from edpbrl_gym.asking.ending import keep_pictures

        if self.pictures is not None:
            shown = [text for texts in ending.answers.texts or [] for text in texts] if self.pictures.at_once else []
            self.pictures.wait(list(dict.fromkeys([one.text for one in ending.best] + shown)), stopping)
        png = (lambda text: None) if self.pictures is None else self.pictures.png
        subject = self.settings.subject
        keep_pictures(ending, self.options.out, png, title=subject or "", subject=subject)

    def close(self) -> None:
        """Stop drawing."""
        if self.pictures is not None:
            self.pictures.close()


def ask_in_browser(options: Ask, settings: AskSettings) -> None:
    """Serve the pages until Ctrl-C, then write what was learnt."""
    from edpbrl_gym._validation import check_count
    from edpbrl_gym.asking.app import create_asking_app
    from edpbrl_gym.asking.conversation import Conversation
    from edpbrl_gym.asking.opening import Opening
    from edpbrl_gym.likelihood import make_format
    from edpbrl_gym.study.web.server import listen, make_server

    out = options.out
    with bad_arguments(), listen("127.0.0.1", options.port) as listening, sigterm_as_interrupt():
        listening.listen()
        levels = {} if settings.levels is None else {"levels": settings.levels}
        format = make_format(settings.format.replace("-", "_"), **levels)
        check_count(settings.num_options, "num_options (K)", minimum=format.asked)
        asked = _Asked(options, settings)
        with closing(asked):
            if not begun(out):
                write_settings(out, settings)
            opening = None
            if asked.is_pool and not (out / SESSION).exists():
                opening = Opening(out / OPENING, asked.pool, settings.num_options, settings.seed)
                if asked.pictures is not None:  # drawn while the browser comes
                    asked.pictures.soon(opening.texts(opening.ask()))
            token, port = secrets.token_urlsafe(24), listening.getsockname()[1]
            server: Any = None

            def stop(error: BaseException) -> None:
                server.should_exit = True

            def make() -> Session:
                encoder = asked.encoder()
                return open_session(out, asked.settings, format, asked.pool, encoder, progress=False)

            conversation = Conversation(
                format,
                make,
                keep=lambda session: session.save(out / SESSION),
                conclude=asked.conclude,
                publish=asked.publish,
                opening=opening,
                pictures=asked.pictures,
                failed=stop,
                questions=options.questions,
            )
            app = create_asking_app(
                conversation,
                token=token,
                folder=out.resolve(),
                pictures=asked.pictures,
                title=settings.subject or "",
                num_options=settings.num_options,
            )
            server = make_server(app, grace=_GRACE)
            _announce(options, f"http://127.0.0.1:{port}/?token={token}", port)
            threading.Timer(_PATIENCE, conversation.start).start()
            with suppress(KeyboardInterrupt):  # the server has stopped by then, and raises it again
                server.run(sockets=[listening])
            console, asked.stopped = output(), True
            console.print(" Stopping. What was learnt is being written ...")
            ending = conversation.close()
            if conversation.session is not None:
                conversation.session.close()
    _tell(options, settings, ending)


def _tell(options: Ask, settings: AskSettings, ending: Ending | None) -> None:
    from edpbrl_gym.cli.ask_in_terminal import next_commands

    console = output()
    for one in ending.best if ending is not None else ():
        console.print(f"  {one.text}", soft_wrap=True)
    taste, following = options.out / TASTE, ""
    if settings.pictures is not None:
        following = f"All pictures, ranked:   {command('edpbrl', 'rank', settings.pictures, '--taste', taste)}"
    elif settings.features in (None, "text"):
        following = f"More prompts, pictures: {command('edpbrl', 'personalize', taste)}"
    for line in next_commands(options.out, ending, following=following):
        console.print(line, soft_wrap=True)


def _announce(options: Ask, address: str, port: int) -> None:
    """Print the address, and open it where there is a display."""
    console = output()
    console.print(f" The questions are at {address}", soft_wrap=True)
    if options.no_open or not has_display():
        tunnel = command("ssh", "-L", f"{port}:127.0.0.1:{port}", f"YOU@{socket.gethostname()}")
        console.print(f" From another computer, first: {tunnel}", soft_wrap=True)
    else:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    console.print(f" Every answer is saved at once in {shown(options.out)}. Ctrl-C stops.", soft_wrap=True)
    sys.stdout.flush()


def has_display() -> bool:
    """Whether a browser that is opened here is seen by whoever typed the command."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
