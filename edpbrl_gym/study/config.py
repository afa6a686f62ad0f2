"""What a study asks, whom and how."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._validation import Feedback
from edpbrl_gym.estimation.priors import PRIORS
from edpbrl_gym.likelihood import AnswerFormat, make_format
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.study.alerts import AlertsConfig
from edpbrl_gym.study.exclusions import Exclusions
from edpbrl_gym.study.forms.pages import Page
from edpbrl_gym.study.recruitment import Recruitment

if TYPE_CHECKING:
    from edpbrl_gym.estimation.taste_prior import TastePrior

__all__ = [
    "CONFIG",
    "NAMED_PRIORS",
    "OF_STUDY",
    "POOL",
    "TEXTS",
    "Arm",
    "ChecksConfig",
    "PicturesConfig",
    "PracticeConfig",
    "QuestionsConfig",
    "StudyConfig",
    "check_driver",
]

CONFIG = "study.toml"
POOL = "folder:"
"""Before a folder of pictures that exist, as the vocabulary of the questions."""
OF_STUDY = Path("study")
"""As the prior of an arm: what those who finished before say about the items of the pool."""
NAMED_PRIORS = (*PRIORS, str(OF_STUDY))
"""Priors of arms that are no file."""
TEXTS = ("consent", "instructions", "thanks")
"""Texts of a study, in Markdown; each is a file texts/NAME.LANGUAGE.txt beside its configuration."""


def check_driver(url: str) -> None:
    """Refuse a database whose driver is not installed."""
    if url.startswith("postgresql"):
        check_installed(Need("psycopg", "a study on PostgreSQL"))


@dataclass(frozen=True)
class QuestionsConfig:
    """The questions."""

    vocabulary: str  # name of a built-in vocabulary, folder of token files, or POOL and a folder of pictures
    encoder: str  # name of the text encoder
    feedback: Feedback  # what the options of a question are: "prompt", "truncated" or "state"
    format: str  # how a question is answered: a name of the answer formats
    options: int  # number of options K
    number: int  # largest number of questions, without practice, checks and repeats
    stopping: StoppingRule | None  # rule by which the questions may end earlier; None: they don't
    cant_tell: bool  # whether "can't tell" is an answer
    undo: bool  # whether the last answer can be taken back
    levels: int | None = None  # levels of a rating; None: as many as the format has

    @property
    def answers(self) -> AnswerFormat:
        """The format of the answers."""
        return make_format(self.format, taps=self.options, **({} if self.levels is None else {"levels": self.levels}))

    @property
    def least(self) -> int:
        """Number of questions that everyone is asked, if not more."""
        return self.number if self.stopping is None else self.stopping.minimum


@dataclass(frozen=True)
class PracticeConfig:
    """What comes before the questions that count."""

    questions: int  # number of practice questions


@dataclass(frozen=True)
class ChecksConfig:
    """Questions whose answers are never used for estimates."""

    attention: int  # number of attention checks, which say which option to choose
    repeated: int  # number of questions that are asked again
    test: int = 0  # number of test questions, the same for everybody, by which estimates are judged

    @property
    def number(self) -> int:
        return self.attention + self.repeated + self.test


@dataclass(frozen=True)
class Arm:
    """A method of choosing questions that the study compares with its other arms."""

    name: str  # in exports
    planner: str  # name of a planner, or of another ``ArmKind``
    weight: int = 1  # participants of this arm in a block
    prior: Path | TastePrior | None = None  # file of `edpbrl fit-population`, name, or made; None: the planner's own
    file: Path | None = None  # file of questions of `edpbrl design`
    options: dict[str, Any] = field(default_factory=dict)  # more options of the planner


@dataclass(frozen=True)
class PicturesConfig:
    """Pictures of the options."""

    renderer: str  # name of who draws them, see ``load_renderer``
    seed: int = 0  # of all pictures
    workers: int | None = None  # processes of a server that draw; None: one, or none with a GPU or a service
    options: dict[str, Any] = field(default_factory=dict)  # of the renderer


@dataclass(frozen=True)
class StudyConfig:
    """The whole configuration of a study; see the commented file of `edpbrl study init`."""

    folder: Path  # folder of the configuration
    title: str  # shown to participants
    languages: tuple[str, ...]  # codes of the languages offered, the first by default
    seed: int  # seed of arms, orders, practice, checks and planners
    database: str | None  # URL; None: study.db in the folder
    consent_version: str  # version of the consent text, stored with each consent
    texts: dict[str, str]  # texts by "NAME.LANGUAGE"
    questions: QuestionsConfig
    practice: PracticeConfig  # what comes before them
    checks: ChecksConfig  # attention checks, repeated questions and test questions
    arms: tuple[Arm, ...]  # the arms, at least one
    pictures: PicturesConfig | None  # of the options; None: they are shown as text
    style: int  # prompts of the learnt taste on the last page, beside as many random ones; 0: none
    files: dict[str, str] = field(default_factory=dict)  # checksums of the files of the arms, by path
    pages: tuple[Page, ...] = ()  # with other questions, in the order in which they are shown
    messages: dict[str, dict[str, str]] = field(default_factory=dict)  # of the pages, the study's own, by language
    translations: dict[str, dict[str, str]] = field(default_factory=dict)  # of its texts, by language and original
    images: dict[str, str] = field(default_factory=dict)  # names under which images are served, by address in texts
    minimum_people: int = 20  # fewest people of whom anything is said together: a start for others, and the report
    recruitment: Recruitment = field(default_factory=Recruitment)  # where people come from, when and how many
    exclusions: Exclusions = field(default_factory=Exclusions)  # who is left out when arms are compared
    alerts: AlertsConfig = field(default_factory=AlertsConfig)  # who is told when something breaks

    @property
    def database_url(self) -> str:
        """URL of the database; files of SQLite are relative to the folder."""
        if self.database is not None and not self.database.startswith("sqlite:///"):
            return self.database
        file = "study.db" if self.database is None else self.database.removeprefix("sqlite:///")
        return f"sqlite:///{self.folder.absolute() / file}"

    @property
    def most_choices(self) -> int:
        """Largest number of choices of a participant, with practice and checks."""
        return self.questions.number + self.practice.questions + self.checks.number

    def shown_in(self, language: str) -> dict[str, str]:
        """What is shown in a language for texts that are stored as they are: those of instruments, then the study's."""
        base = language.partition("-")[0]
        found: dict[str, str] = {}
        for page in self.pages:
            found |= page.translations.get(language, page.translations.get(base, {}))
        return found | self.translations.get(language, {})

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that a participant sees or that decides it; stored with every answer."""
        return _digest({**self._asking(), **self._shown()})

    @property
    def asking_fingerprint(self) -> str:
        """SHA-256 of what decides which questions are asked: it must not change while a study runs."""
        return _digest(self._asking())

    @property
    def parts(self) -> dict[str, str]:
        """First 16 digits of the SHA-256 of what a preregistration fixes, by its part."""
        asking, shown, recruitment = self._asking(), self._shown(), _plain(self.recruitment)
        arms = {name: asking.pop(name, None) for name in ("arms", "files", "crowd")}
        others = {name: value for name, value in shown.items() if name not in ("pictures", "recruitment")}
        documents = {
            "questions": {**asking, "pictures": shown["pictures"]},
            "arms": arms,
            "people": {name: recruitment[name] for name in ("people", "arms", "closes", "time_out")},
            "exclusions": self.exclusions.as_json(),
            "pages and texts": others,
        }
        return {name: _digest(document)[:16] for name, document in documents.items()}

    def _asking(self) -> dict[str, Any]:
        document = _plain({name: getattr(self, name) for name in ("seed", "checks", "files")})
        if not self.checks.test:
            del document["checks"]["test"]  # as in studies that began before there were test questions
        document["questions"] = {name: _plain(getattr(self.questions, name)) for name in _ASKING}
        if self.questions.levels is not None:
            document["questions"]["levels"] = self.questions.levels
        document["practice"] = self.practice.questions
        document["arms"] = [
            {**_plain(asdict(arm)), "prior": arm.prior is not None, "file": arm.file is not None} for arm in self.arms
        ]
        starts = [arm.name for arm in self.arms if arm.prior == OF_STUDY]
        if starts:
            document["crowd"] = {"arms": starts, "minimum_people": self.minimum_people}
        return document

    def _shown(self) -> dict[str, Any]:
        names = ("title", "languages", "consent_version", "texts", "pictures", "style", "recruitment")
        document: dict[str, Any] = {name: _plain(getattr(self, name)) for name in names}
        del document["recruitment"]["pay"]
        document["undo"], document["cant_tell"] = self.questions.undo, self.questions.cant_tell
        more = {"pages": repr(self.pages), "messages": self.messages, "translations": self.translations}
        document |= {name: value for name, value in {**more, "images": self.images}.items() if value and value != "()"}
        return document


_ASKING = ("vocabulary", "encoder", "feedback", "format", "options", "number", "stopping")


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
