"""Looks whether a study can be served where it is, and says what to do where it can't."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config import OF_STUDY, StudyConfig
from edpbrl_gym.study.config_reading import Mistakes, read_config
from edpbrl_gym.study.database import Database
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.overview import stuck
from edpbrl_gym.study.pictures import study_renderer
from edpbrl_gym.study.planning import make_planning
from edpbrl_gym.study.records import Participant
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.visits import Visit
from edpbrl_gym.study.watching import LEAST_DISK, LEAST_MEMORY, available_memory, free_disk

__all__ = ["Finding", "look_at"]

_PATIENCE = 10.0  # seconds for an address
_CLOCK = 120.0  # seconds that clocks may differ
_YEAR = 2026  # before which no clock is right


@dataclass(frozen=True)
class Finding:
    """What was looked at, and how it is."""

    what: str
    found: str
    to_do: str = ""  # what needs doing; "": nothing

    @property
    def is_well(self) -> bool:
        return not self.to_do


def look_at(folder: Path, *, port: int | None = None, public_url: str | None = None) -> Iterator[Finding]:
    """Look at everything that a study needs, one after the other; an older database gets the tables of this version.

    Args:
        folder: Of the study.
        port: Of a server that should run; None: it is not looked for.
        public_url: Address at which people should reach it; None: it is not looked for.
    """
    try:
        config = read_config(folder)
        plan, materials = examine(config)
    except FileNotFoundError as error:
        yield Finding("Configuration", "missing", str(error))
        return
    except Mistakes as error:
        yield Finding("Configuration", f"{len(error.mistakes)} mistakes", "; ".join(error.mistakes))
        return
    yield Finding("Configuration", f"reads, {len(config.texts)} texts", "; ".join(plan.notes))
    looks: list[tuple[str, Callable[[], Finding]]] = [
        ("Folder", lambda: _folder(config)),
        ("Disk", lambda: _disk(config)),
        ("Memory", _memory),
        ("Clock", _clock),
        ("Database", lambda: _database(config)),
        ("Questions", lambda: _questions(config, materials)),
        ("People", lambda: _people(config)),
    ]
    if config.pictures is not None:
        looks.append(("Pictures", lambda: _pictures(config, materials)))
    if port is not None:
        looks.append(("Server", lambda: _reached("Server", f"http://127.0.0.1:{port}")))
    if public_url is not None:
        looks.append(("Public address", lambda: _reached("Public address", public_url)))
    for what, look in looks:
        try:
            yield look()
        except Exception as error:
            yield Finding(what, type(error).__name__, " ".join(str(error).split()) or "look at the log")


def _folder(config: StudyConfig) -> Finding:
    """Whether files can be written: the database, pictures, and what SQLite keeps beside its file."""
    with tempfile.TemporaryFile(dir=config.folder):
        pass
    database = _file(config)
    open_to_all = database is not None and database.is_file() and database.stat().st_mode & 0o004
    to_do = f"everybody on this machine can read the answers: chmod o-r {database}" if open_to_all else ""
    return Finding("Folder", "can be written", to_do)


def _file(config: StudyConfig) -> Path | None:
    """That of SQLite; None: the database is another one."""
    url = config.database_url
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def _disk(config: StudyConfig) -> Finding:
    free = free_disk(config.folder)
    to_do = f"free some space, at least {LEAST_DISK / 1e9:g} GB" if free < LEAST_DISK else ""
    return Finding("Disk", f"{free / 1e9:.1f} GB free", to_do)


def _memory() -> Finding:
    left = available_memory()
    if left is None:
        return Finding("Memory", "not known on this system")
    to_do = "stop other programs, or take fewer --workers" if left < LEAST_MEMORY else ""
    return Finding("Memory", f"{left / 1e9:.1f} GB available", to_do)


def _clock() -> Finding:
    year = time.gmtime().tm_year
    return Finding("Clock", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "set the clock" if year < _YEAR else "")


def _database(config: StudyConfig) -> Finding:
    """Whether it opens, has this version's tables, and is whole."""
    path = _file(config)
    if path is not None and not path.is_file():
        return Finding("Database", "none yet; the first `edpbrl study serve` makes it")
    if path is not None:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)) as connection:
            [found] = connection.execute("PRAGMA quick_check").fetchone()
        if found != "ok":
            return Finding("Database", f"damaged: {found}", "stop the server, and restore the last backup")
    with closing(Database(config.database_url, create=False)) as database:
        return Finding("Database", f"{database.name}, whole, tables of this version")


def _questions(config: StudyConfig, materials: Materials) -> Finding:
    """Whether each arm that plans can ask a question where ``serve`` would."""
    count = 0
    with closing(make_planning(materials)) as planning:
        for number, arm in enumerate(config.arms):
            if not kind_of(arm).posted and arm.prior != OF_STUDY:
                planning.choose(Visit(materials, _nobody(number, arm.name), arm), [])
                count += 1
        where = f"in {planning.workers} worker processes" if planning.workers else "in the process of the pages"
        died = "a worker process died: is there enough memory?" if planning.deaths else ""
    return Finding("Questions", f"{count} of {len(config.arms)} arms plan one {where}", died)


def _nobody(number: int, arm: str) -> Participant:
    return Participant(
        id=number, number=number, code="doctor", external={}, arm=arm, language="en", consent_version=None,
        consented_at=None, status="asking", created_at="", place=None, pilot=False,
    )  # fmt: skip


def _people(config: StudyConfig) -> Finding:
    path = _file(config)
    if path is not None and not path.is_file():
        return Finding("People", "nobody yet")
    with closing(Store(config.database_url, create=False)) as store:
        slow, left = stuck(store, config)
    said = f"{len(left)} left a question open for half an hour"
    to_do = f"{len(slow)} wait for a question that does not come: look at the log" if slow else ""
    return Finding("People", said, to_do)


def _pictures(config: StudyConfig, materials: Materials) -> Finding:
    """Whether a picture can be had; what is drawn already is not drawn again."""
    assert config.pictures is not None
    text = materials.vocabulary.prompt([0] * materials.vocabulary.horizon)
    with study_renderer(config, config.pictures, budget=1) as renderer:
        renderer.renderer.load()
        renderer.render([text], seed=config.pictures.seed)
    return Finding("Pictures", f"{config.pictures.renderer} draws")


def _reached(what: str, address: str) -> Finding:
    """Whether a server answers at an address, and its clock goes as ours."""
    if not address.startswith(("http://", "https://")):
        return Finding(what, address, "give an address that begins with https://")
    try:
        with urlopen(Request(f"{address}/health"), timeout=_PATIENCE) as answer:  # noqa: S310 - http only
            sent = answer.headers.get("date")
    except HTTPError as error:
        to_do = (
            "the database can't be reached" if error.code == 503 else "is this the study, and --public-url its name?"
        )
        return Finding(what, f"{address} answers {error.code}", to_do)
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        return Finding(
            what, f"{address} is not reached ({reason})", "start `edpbrl study serve`, and the proxy before it"
        )
    if sent and abs(parsedate_to_datetime(sent).timestamp() - time.time()) > _CLOCK:
        return Finding(what, f"{address} answers", "its clock differs from that of this machine: set both")
    return Finding(what, f"{address} answers")
