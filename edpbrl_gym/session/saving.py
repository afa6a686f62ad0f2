"""What a session writes: its settings, its events, and snapshots of its planner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym.estimation.population import Population
from edpbrl_gym.session.journal import Journal, is_plain
from edpbrl_gym.session.transcript import Event

if TYPE_CHECKING:
    from edpbrl_gym.session.session import Session

__all__ = ["SessionRecord", "check_settings", "settings_of"]


class SessionRecord:
    """The events of a session: in memory as long as it has no folder, then in the folder's journal.

    Attributes:
        journal: The journal, None as long as there is no folder.
    """

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self._events: list[Event] = []

    @property
    def folder(self) -> Path | None:
        """The session's folder."""
        return None if self.journal is None else self.journal.folder

    def append(self, event: Event, *, durable: bool) -> None:
        """Add an event; see ``Journal.append``."""
        if self.journal is None:
            self._events.append(event)
        else:
            self.journal.append(event, durable=durable)

    def remember(self, events: Sequence[Event]) -> None:
        """Take events that another record holds, in the place of none."""
        self._events = list(events)

    def begin(self, folder: Path | None, settings: Callable[[], Mapping[str, Any]]) -> Path:
        """Write all events to a new folder, if there is none yet, and those to come.

        Returns:
            The session's folder.

        Raises:
            ValueError: The session has no folder and none is given, or it has another one.
            FileExistsError: The folder is not empty.
            OSError: It can't be written.
        """
        if self.journal is None:
            if folder is None:
                raise ValueError("Expected a folder to save this session in, it has none yet; save(folder)")
            self.journal = Journal.create(folder.absolute(), settings(), self._events)
            self._events = []
        elif folder is not None and folder.absolute() != self.journal.folder:
            raise ValueError(
                f"Expected the session's own folder {self.journal.folder}, got {folder}; copy the folder after close()"
            )
        return self.journal.folder

    def write_planner(self, state: dict[str, Any] | None) -> None:
        """Save the planner's state after all events, if there is a folder and the state can be saved."""
        if self.journal is not None and state is not None and is_plain(state):
            self.journal.write_planner(state)

    def try_to_write_planner(self, state: dict[str, Any] | None) -> None:
        """The same if possible: the answers are safe, without the state resuming only takes longer."""
        try:
            self.write_planner(state)
        except OSError as error:
            assert self.journal is not None
            self.journal.check()  # raises if the answers are not safe
            warnings.warn(f"The planner's state could not be saved in {self.folder}: {error}", stacklevel=3)


def settings_of(session: Session) -> dict[str, Any]:
    """Settings that must be the same when a session is resumed."""
    encoder = session.maker.encoder
    priors = {
        "population": session.outlook.given_prior,
        "population_of_the_planner": getattr(session.planner, "prior", None),
    }
    return {
        "num_options": session.num_options,
        "feedback": session.maker.feedback,
        "seed": session.outlook.seed,
        "who": session.who,
        "vocabulary_fingerprint": session.vocabulary.fingerprint,
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "model": repr(session.model),
        "planner": session.planner.name,
        **{name: one.fingerprint for name, one in priors.items() if isinstance(one, Population)},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def check_settings(session: Session, saved: Mapping[str, Any], folder: Path) -> None:
    """Raise a ValueError where a session has other settings than the saved one that it is to continue."""
    given = settings_of(session)
    for key in dict.fromkeys((*given, "population", "population_of_the_planner")):
        if key != "created" and saved.get(key) != given.get(key):
            raise ValueError(
                f"Expected the {key.replace('_', ' ')} with which the session in {folder} began "
                f"({saved.get(key)!r}), got {given.get(key)!r}"
            )
