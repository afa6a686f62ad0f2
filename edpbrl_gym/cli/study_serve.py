"""``edpbrl study serve``: the pages of a study."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._addresses import origin
from edpbrl_gym._compat import Need
from edpbrl_gym._threads import share_heaps
from edpbrl_gym.cli.arguments import Budget, check_counts
from edpbrl_gym.cli.console import UsageError, bad_arguments, bullet, output, quiet_libraries
from edpbrl_gym.cli.study import PAGES, OfStudy, study_needs

if TYPE_CHECKING:
    from edpbrl_gym.study.config import StudyConfig

__all__ = ["ADMIN_TOKEN", "StudyServe", "checked_url", "run"]

ADMIN_TOKEN = "EDPBRL_ADMIN_TOKEN"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")  # as requests write them
_LEAST_TOKEN = 16  # characters


@dataclass(frozen=True)
class StudyServe(OfStudy):
    """Serve the pages of a study until Ctrl-C; every answer is stored before it is acknowledged."""

    host: str = "127.0.0.1"
    """Address to listen at; the default is reached from this machine only."""
    port: int = 8000
    """Port to listen at (0: any free one)."""
    public_url: str | None = None
    """Address at which people reach the study behind a reverse proxy, such as https://study.example.org."""

    workers: int | None = None
    """Processes that choose questions which follow answers (None: as many as there are cores but one, at least one; 0:
    none, the process of the pages does)."""
    log_format: Literal["text", "json"] = "text"
    """Write the log as sentences, or as lines of JSON for a program that collects them."""

    budget: OmitArgPrefixes[Budget] = field(default_factory=Budget)

    def needs(self) -> list[Need]:
        figures = [Need("matplotlib", f"the report on the researcher's pages ({ADMIN_TOKEN})")]
        return [*study_needs(*PAGES, "uvicorn"), *(figures if ADMIN_TOKEN in os.environ else [])]


def run(options: StudyServe) -> None:
    """Run the server."""
    token = _admin_token()
    public = checked_url(options.public_url)
    quiet_libraries()
    share_heaps()
    from edpbrl_gym._texts import read_text
    from edpbrl_gym.study.alerts import Alerts
    from edpbrl_gym.study.config import CONFIG
    from edpbrl_gym.study.config_reading import read_config
    from edpbrl_gym.study.logs import log_as_json
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.pictures import make_pictures
    from edpbrl_gym.study.planning import make_planning
    from edpbrl_gym.study.queue import StudyQueue
    from edpbrl_gym.study.store import Store
    from edpbrl_gym.study.watching import Watch
    from edpbrl_gym.study.web import create_app, make_server
    from edpbrl_gym.study.web.preview import preview_address
    from edpbrl_gym.study.web.server import listen

    if options.log_format == "json":
        log_as_json()
    with bad_arguments():
        check_counts(options, workers=0)
        config = read_config(options.folder)
        listening = listen(options.host, options.port)  # before anything is loaded: a taken port is known at once
    with listening, bad_arguments():
        materials = Materials(config)
        planning = make_planning(materials, options.workers)  # before there are threads
        store = Store(config.database_url, config=config.fingerprint, document=read_text(options.folder / CONFIG))
        with closing(planning), closing(store):
            pictures, budget = None, options.budget.budget_pictures
            if config.pictures is not None:
                pictures = make_pictures(config, config.pictures, budget=budget)
            queue = StudyQueue(config, store, materials, planning=planning, pictures=pictures)
            with closing(queue), closing(pictures) if pictures else nullcontext(), ExitStack() as stack:
                alerts = stack.enter_context(closing(Alerts(config.alerts, config.title)))
                watch = stack.enter_context(closing(Watch(queue, alerts)))
                port, hosts = listening.getsockname()[1], _hosts(options, public)
                app = create_app(queue, public_url=public, hosts=hosts, admin_token=token, watch=watch)
                _announce(options, config, port, public, token, preview_address(store.secret))
                with suppress(KeyboardInterrupt):  # the server has stopped by then, and raises it again
                    make_server(app, own_log=options.log_format == "text").run(sockets=[listening])
                store.database.check()  # otherwise the next sentence is not true
    output().print("Stopped. Everything that was acknowledged is stored; serve again to go on.")


def _admin_token() -> str | None:
    token = os.environ.get(ADMIN_TOKEN)
    if token is not None and len(token) < _LEAST_TOKEN:
        raise UsageError(
            f"Expected a secret of at least {_LEAST_TOKEN} characters in {ADMIN_TOKEN}, got {len(token)}; make one "
            "with `openssl rand -hex 16`"
        )
    return token


def checked_url(url: str | None) -> str | None:
    """The origin of a public address; an error where it is none."""
    try:
        return None if url is None else origin(url.strip())
    except ValueError:
        raise UsageError(
            f"Expected --public-url such as https://study.example.org, without a path or a password, got {url!r}"
        ) from None


def _hosts(options: StudyServe, public: str | None) -> tuple[str, ...]:
    if public is not None:
        return (public.partition("//")[2], *_LOOPBACK_NAMES)
    return _LOOPBACK_NAMES if options.host in _LOOPBACK else ("*",)


def _announce(
    options: StudyServe, config: StudyConfig, port: int, public: str | None, token: str | None, preview: str
) -> None:
    console = output()
    address = public or f"http://{options.host if ':' not in options.host else f'[{options.host}]'}:{port}"
    bullet(console, "Participants", f"{address}/?{config.recruitment.preset.link}")
    bullet(console, "Preview", f"{address}{preview} (for you: nothing is stored)")
    if config.recruitment.pilot:
        bullet(console, "Pilot", "whoever comes is marked, and left out of reports and exports")
    bullet(
        console, "Researchers", f"{address}/admin" if token else f"off: set {ADMIN_TOKEN} to a secret to see progress"
    )
    if options.host not in _LOOPBACK and not (public or "").startswith("https://"):
        bullet(console, "Unsafe", "people on the network can read what others answer; put a TLS proxy in front of it")
    console.print("Ctrl-C stops.")
