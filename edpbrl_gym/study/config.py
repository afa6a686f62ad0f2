"""What a study asks, whom and how."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._feedback import Feedback
from edpbrl_gym.session.stopping import StoppingRule

__all__ = [
    "CONFIG",
    "FORMATS",
    "ORACLE",
    "TEXTS",
    "Arm",
    "ChecksConfig",
    "ComprehensionQuestion",
    "PracticeConfig",
    "QuestionsConfig",
    "RendererConfig",
    "StudyConfig",
    "check_driver",
]

CONFIG = "study.toml"
FORMATS = ("best", "best_worst", "ranking", "partial")
ORACLE = "oracle"
"""The planner of an arm whose questions a ``HumanOracle`` posts."""
TEXTS = ("consent", "instructions", "thanks")
"""Texts of a study; each is a file texts/NAME.LANGUAGE.txt beside its configuration."""


def check_driver(url: str) -> None:
    """Refuse a database whose driver is not installed.

    Raises:
        ModuleNotFoundError: It is one of PostgreSQL, without psycopg.
    """
    if url.startswith("postgresql"):
        check_installed(Need("psycopg", "a study on PostgreSQL"))


@dataclass(frozen=True)
class QuestionsConfig:
    """The questions.

    Attributes:
        vocabulary: Name of a built-in vocabulary, or folder of token files.
        encoder: Name of the text encoder.
        feedback: What the options of a question are: "prompt", "truncated" or "state".
        format: How a question is answered: "best", "best_worst", "ranking" or "partial".
        options: Number of options K.
        number: Largest number of questions, without practice, checks and repeats.
        stopping: Rule by which the questions may end earlier; None: they don't.
        cant_tell: Whether "can't tell" is an answer.
        undo: Whether the last answer can be taken back.
    """

    vocabulary: str
    encoder: str
    feedback: Feedback
    format: str
    options: int
    number: int
    stopping: StoppingRule | None
    cant_tell: bool
    undo: bool

    @property
    def least(self) -> int:
        """Number of questions that everyone is asked, if not more."""
        return self.number if self.stopping is None else self.stopping.minimum


@dataclass(frozen=True)
class ComprehensionQuestion:
    """A question about the instructions, with its choices and the index of the correct one."""

    text: str
    choices: tuple[str, ...]
    correct: int


@dataclass(frozen=True)
class PracticeConfig:
    """What comes before the questions that count.

    Attributes:
        questions: Number of practice questions.
        attempts: Attempts at the comprehension check.
        comprehension: Its questions; without any there is no check.
    """

    questions: int
    attempts: int
    comprehension: tuple[ComprehensionQuestion, ...]


@dataclass(frozen=True)
class ChecksConfig:
    """Questions whose answers are never used for estimates.

    Attributes:
        attention: Number of attention checks, which say which option to choose.
        repeated: Number of questions that are asked again.
        test: Number of test questions, the same for everybody: estimates are judged, and people compared, by them.
    """

    attention: int
    repeated: int
    test: int = 0

    @property
    def number(self) -> int:
        """Number of all of them."""
        return self.attention + self.repeated + self.test


@dataclass(frozen=True)
class Arm:
    """A method of choosing questions that the study compares with its other arms.

    Attributes:
        name: In exports.
        planner: Name of a planner, "questions" for those of a file, or "oracle" for those of an environment's loop.
        weight: Participants of this arm in a block.
        prior: File of `edpbrl fit-population`; None: the planner's own prior.
        file: File of questions of `edpbrl design`, for the planner "questions".
        options: More options of the planner.
    """

    name: str
    planner: str
    weight: int = 1
    prior: Path | None = None
    file: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RendererConfig:
    """Pictures of the options, drawn by a text-to-image model; see ``ImageSettings``."""

    model: str
    size: int
    steps: int
    seed: int
    guidance: float
    dtype: Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class StudyConfig:
    """The whole configuration of a study; see the commented file of `edpbrl study init`.

    Attributes:
        folder: Folder of the configuration.
        title: Shown to participants.
        languages: Codes of the languages offered, the first by default.
        seed: Seed of arms, orders, practice, checks and planners.
        completion_code: Shown at the end.
        database: URL; None: study.db in the folder.
        consent_version: Version of the consent text, stored with each consent.
        texts: Texts by "NAME.LANGUAGE".
        questions: The questions.
        practice: What comes before them.
        checks: Attention checks, repeated questions and test questions.
        arms: The arms, at least one.
        renderer: Pictures; None: options are shown as text.
        style: Prompts of the learnt taste on the last page, beside as many random ones; 0: none.
        files: Checksums of the files of the arms, by path.
    """

    folder: Path
    title: str
    languages: tuple[str, ...]
    seed: int
    completion_code: str
    database: str | None
    consent_version: str
    texts: dict[str, str]
    questions: QuestionsConfig
    practice: PracticeConfig
    checks: ChecksConfig
    arms: tuple[Arm, ...]
    renderer: RendererConfig | None
    style: int
    files: dict[str, str] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        """URL of the database; files of SQLite are relative to the folder."""
        if self.database is not None and not self.database.startswith("sqlite:///"):
            return self.database
        file = "study.db" if self.database is None else self.database.removeprefix("sqlite:///")
        return f"sqlite:///{self.folder.absolute() / file}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that a participant sees or that decides it; stored with every answer."""
        return _digest({**self._asking(), **self._shown()})

    @property
    def asking_fingerprint(self) -> str:
        """SHA-256 of what decides which questions are asked: it must not change while a study runs."""
        return _digest(self._asking())

    def _asking(self) -> dict[str, Any]:
        document = _plain({name: getattr(self, name) for name in ("seed", "checks", "files")})
        if not self.checks.test:
            del document["checks"]["test"]  # as in studies that began before there were test questions
        document["questions"] = {name: _plain(getattr(self.questions, name)) for name in _ASKING}
        document["practice"] = self.practice.questions
        document["arms"] = [
            {**_plain(asdict(arm)), "prior": arm.prior is not None, "file": arm.file is not None} for arm in self.arms
        ]
        return document

    def _shown(self) -> dict[str, Any]:
        names = ("title", "languages", "completion_code", "consent_version", "texts", "renderer", "style")
        document: dict[str, Any] = {name: _plain(getattr(self, name)) for name in names}
        document["undo"], document["cant_tell"] = self.questions.undo, self.questions.cant_tell
        document["comprehension"] = _plain(asdict(self.practice))
        return document


_ASKING = ("vocabulary", "encoder", "feedback", "format", "options", "number", "stopping")


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
