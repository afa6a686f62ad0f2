"""The configuration of a study, read strictly from its file study.toml and the texts beside it."""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from edpbrl_gym._files import errors_naming
from edpbrl_gym._texts import read_text
from edpbrl_gym._validation import Feedback
from edpbrl_gym.features.images import PICTURE_FEATURES
from edpbrl_gym.likelihood import FORMATS
from edpbrl_gym.rendering.settings import MAX_SEED
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.study.alerts import read_alerts
from edpbrl_gym.study.arms import kind_of, planner_names
from edpbrl_gym.study.config import (
    CONFIG,
    NAMED_PRIORS,
    POOL,
    TEXTS,
    Arm,
    ChecksConfig,
    PicturesConfig,
    PracticeConfig,
    QuestionsConfig,
    StudyConfig,
    check_driver,
)
from edpbrl_gym.study.exclusions import read_exclusions
from edpbrl_gym.study.forms.reading import read_pages
from edpbrl_gym.study.prose import image_name, images_of, wrong_image
from edpbrl_gym.study.recruitment_reading import read_recruitment
from edpbrl_gym.study.wording import read_messages, read_translations

__all__ = ["Mistakes", "Table", "config_of", "read_config", "read_document"]

_MAX_SHOWN = 60  # characters of a value in a message
_FEEDBACKS = ("prompt", "truncated", "state")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
_MOST_WORKERS = 64  # processes that draw


class Mistakes(ValueError):
    """What is wrong in a document (``source``): its ``mistakes``, all of them, one sentence each."""

    def __init__(self, source: str, mistakes: Sequence[str]) -> None:
        self.source = source
        self.mistakes = tuple(mistakes)
        number = "1 mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        super().__init__(f"{number} in {source}: {'; '.join(self.mistakes)}")


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileNotFoundError: There is no such file.
        Mistakes: It is no TOML in UTF-8.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at {path}, found none; check the path")
    try:
        text = read_text(path)
    except ValueError as error:
        raise Mistakes(str(path), [str(error)]) from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Mistakes(str(path), [f"expected TOML, got something else: {error}; correct that line"]) from None


class Table:
    """A table of the document whose values are taken key by key; a wrong value is noted, and its default returned."""

    def __init__(self, values: dict[str, Any], name: str, mistakes: list[str]) -> None:
        self._values = values
        self._name = name
        self._taken: set[str] = set()
        self.mistakes = mistakes

    def key(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def note(self, name: str, expected: str, remedy: str = "") -> None:
        got = _shown(self._values[name]) if name in self._values else "nothing"
        self.mistakes.append(f"{self.key(name)}: expected {expected}, got {got}{f'; {remedy}' if remedy else ''}")

    def has(self, name: str) -> bool:
        return name in self._values

    def _take(self, name: str, kind: type | tuple[type, ...], expected: str, required: bool, remedy: str) -> Any:
        """The value of a key if it has the type; None if not, or if there is none."""
        self._taken.add(name)
        if name not in self._values:
            if required:
                self.note(name, expected, remedy or "add it")
            return None
        value = self._values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.note(name, expected, remedy)
            return None
        return value

    def text(self, name: str, default: str | None = None, *, of: str = "a text", empty: bool = False) -> str:
        """A text in quotes, trimmed; required without a default."""
        value = self._take(name, str, f"{of} in quotes", default is None, "")
        if value is not None and not empty and not value.strip():
            self.note(name, f"{of} in quotes", "write it between the quotes")
            value = None
        return (default or "") if value is None else value.strip()

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        expected = f"one of {', '.join(map(repr, allowed))}"
        value = self._take(name, str, expected, False, "")
        if value is None:
            return default
        if value not in allowed:
            close = difflib.get_close_matches(value, allowed, 1)
            self.note(name, expected, f"did you mean {close[0]!r}?" if close else "")
            return default
        return str(value)

    def integer(self, name: str, default: int, *, minimum: int, maximum: int | None = None) -> int:
        most = f" and at most {maximum}" if maximum is not None else ""
        expected = f"a whole number of at least {minimum}{most}"
        value = self._take(name, int, expected, False, f"write {name} = {default}, without quotes")
        if value is None:
            return default
        if value < minimum or (maximum is not None and value > maximum):
            self.note(name, expected)
            return default
        return int(value)

    def number(self, name: str, default: float, *, minimum: float, maximum: float) -> float:
        expected = f"a number from {minimum:g} to {maximum:g}"
        value = self._take(name, (int, float), expected, False, f"write {name} = {default:g}, without quotes")
        if value is None:
            return default
        if not math.isfinite(value) or not minimum <= value <= maximum:
            self.note(name, expected)
            return default
        return float(value)

    def moment(self, name: str) -> datetime | None:
        """A date with a time and its offset from UTC; None: there is none."""
        expected = "a time with its offset from UTC, without quotes"
        remedy = f"write {name} = 2027-01-31T09:00:00+01:00"
        value = self._take(name, datetime, expected, False, remedy)
        if value is not None and value.tzinfo is None:
            self.note(name, expected, remedy)
            value = None
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, bool, "true or false", False, "write it without quotes, in small letters")
        return default if value is None else bool(value)

    def texts(self, name: str, default: Sequence[str], *, of: str, least: int = 1) -> tuple[str, ...]:
        """A list of at least ``least`` different texts."""
        expected = f"a list of {of}, at least {least}, each once"
        value = self._take(name, list, expected, False, "write texts in quotes between [ and ]")
        if value is None:
            return tuple(default)
        texts = [one.strip() for one in value if isinstance(one, str) and one.strip()]
        if len(texts) != len(value) or len(set(texts)) != len(texts) or len(texts) < least:
            self.note(name, expected, "write texts in quotes between [ and ]")
            return tuple(default)
        return tuple(texts)

    def table(self, name: str) -> Table:
        """A table; an empty one if there is none."""
        value = self._take(name, dict, "a table", False, f"begin it with a line [{self.key(name)}]")
        return Table(value or {}, self.key(name), self.mistakes)

    def tables(self, name: str) -> list[Table]:
        """A list of tables, empty if there is none."""
        remedy = f"begin each of them with a line [[{self.key(name)}]]"
        value = self._take(name, list, "a list of tables", False, remedy)
        if value is not None and not all(isinstance(one, dict) for one in value):
            self.note(name, "a list of tables", remedy)
            value = None
        return [Table(one, f"{self.key(name)}[{index}]", self.mistakes) for index, one in enumerate(value or [], 1)]

    def value(self, name: str) -> Any:
        """A value of any type; None if there is none."""
        self._taken.add(name)
        return self._values.get(name)

    def remaining(self) -> dict[str, Any]:
        """All values that were not taken, as they are."""
        rest = {name: value for name, value in self._values.items() if name not in self._taken}
        self._taken |= set(rest)
        return rest

    def refuse_others(self, also: Iterable[str] = ()) -> None:
        """Note the keys that were not taken: they would be ignored; ``also`` there may be others."""
        self._taken |= set(also)
        for name in self._values:
            if name not in self._taken:
                close = difflib.get_close_matches(name, sorted(self._taken), 1)
                remedy = f"did you mean {close[0]!r}?" if close else "take it out"
                known = ", ".join(sorted(self._taken))
                self.mistakes.append(f"{self.key(name)}: expected one of the keys {known}, got {name!r}; {remedy}")


def _shown(value: Any) -> str:
    text = repr(value)
    kinds = {bool: "", str: "", int: "", float: "", list: "a list, ", dict: "a table, "}
    return f"{kinds.get(type(value), '')}{text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '...'}"


def read_config(folder: str | os.PathLike[str]) -> StudyConfig:
    """Read study.toml of a folder and the texts beside it; nothing else is loaded (see ``edpbrl_gym.study.checks``).

    Raises:
        FileNotFoundError: There is no such file.
        Mistakes: The file or a text has mistakes; the error lists all of them.
    """
    place = Path(folder)
    path = place / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"Expected a study at {path}, found none; make one with `edpbrl study init {place}`")
    return config_of(read_document(path), place)


def config_of(document: dict[str, Any], folder: Path) -> StudyConfig:
    """The configuration of a document, as TOML gives it, for a folder with its texts and files."""
    mistakes: list[str] = []
    config = _study(Table(document, "", mistakes), folder, mistakes)
    if mistakes:
        raise Mistakes(str(folder / CONFIG), mistakes)
    return config


def _study(table: Table, folder: Path, mistakes: list[str]) -> StudyConfig:
    languages = table.texts("languages", ("en",), of='codes of languages, such as "en"')
    if not all(_LANGUAGE.fullmatch(language) for language in languages):
        table.note("languages", 'codes of languages, such as "en" or "zh-Hans"')
        languages = ("en",)
    consent = table.table("consent")
    version = consent.text("version", of="the version of the consent text")
    consent.refuse_others()
    thanks = table.table("thanks")
    style = thanks.integer("style", 4, minimum=0, maximum=12)
    thanks.refuse_others()
    crowd = table.table("crowd")
    least = crowd.integer("minimum_people", StudyConfig.minimum_people, minimum=2)
    crowd.refuse_others()
    questions = _questions(table.table("questions"), pictures=table.has("pictures"))
    exist = PicturesConfig(questions.vocabulary) if questions.vocabulary.startswith(POOL) else None
    arms = _arms(table, folder, questions)
    practice, checks = _practice(table.table("practice")), _checks(table.table("checks"), questions)
    total = questions.number + practice.questions + checks.number
    pages = read_pages(table, reserved=TEXTS, total=total)
    texts = _texts(folder, languages, [page.name for page in pages], mistakes)
    translations = read_translations(folder / "translations", languages, mistakes)
    written = [(str(folder / "texts" / f"{name}.txt"), text) for name, text in texts.items()]
    for page in pages:
        written.append((f"pages ({page.name}): text", page.text))
        written += [
            (str(folder / "translations" / f"{language}.csv"), shown.get(page.text, ""))
            for language, shown in translations.items()
        ]
    config = StudyConfig(
        folder=folder,
        title=table.text("title", of="the title"),
        languages=languages,
        seed=table.integer("seed", 0, minimum=0, maximum=2**63 - 1),
        database=_database(table),
        consent_version=version,
        texts=texts,
        questions=questions,
        practice=practice,
        checks=checks,
        arms=arms,
        pictures=_pictures(table) or exist,
        style=style,
        files={
            os.path.relpath(one, folder): _checksum(one)
            for arm in arms
            for one in (arm.prior, arm.file)
            if isinstance(one, Path) and str(one) not in NAMED_PRIORS and one.is_file()
        },
        minimum_people=least,
        pages=pages,
        messages=read_messages(folder / "messages", languages, mistakes),
        translations=translations,
        images=_images(folder, written, mistakes),
        recruitment=read_recruitment(table, [arm.name for arm in arms]),
        exclusions=read_exclusions(table, checks),
        alerts=read_alerts(table),
    )
    table.refuse_others()
    return config


def _questions(table: Table, *, pictures: bool) -> QuestionsConfig:
    rule = None
    number = table.integer("number", 30, minimum=1, maximum=1000)
    if table.has("stop_when_sure"):
        rule = _stopping(table.table("stop_when_sure"), number)
    format = table.choice("format", tuple(FORMATS), "best")
    least = FORMATS[format].least
    levels = table.integer("levels", 5, minimum=2, maximum=7) if table.has("levels") else None
    vocabulary = table.text("vocabulary", "images", of="a built-in vocabulary or a folder")
    exist = vocabulary.startswith(POOL)
    pictures |= exist
    encoder = "+".join(f"picture:{one}" for one in PICTURE_FEATURES.split("+")) if exist else "minilm"
    result = QuestionsConfig(
        vocabulary=vocabulary,
        encoder=table.text("encoder", encoder, of="an encoder"),
        feedback=cast(Feedback, table.choice("feedback", _FEEDBACKS, "prompt")),
        format=format,
        options=table.integer("options", 4, minimum=least, maximum=12),
        number=number,
        stopping=rule,
        cant_tell=table.flag("cant_tell", True),
        undo=table.flag("undo", True),
        levels=levels,
    )
    try:
        fits = levels is None or any(one.levels == levels for one in result.answers.inputs)
    except ValueError:  # the format has its own
        fits = False
    if not fits:
        table.note("levels", f"no other levels with format = {format!r}", "leave it out")
    least = FORMATS[format].asked
    if result.options < least:
        table.note("options", f"at least {least} options with format = {format!r}", "ask for the best instead")
    table.refuse_others()
    return result


def _stopping(table: Table, number: int) -> StoppingRule:
    rule = StoppingRule(
        target=table.number("accuracy", 0.9, minimum=0.51, maximum=1.0),
        gain=table.number("gain", 0.01, minimum=0.0, maximum=0.5),
        lookahead=table.integer("lookahead", 30, minimum=1, maximum=1000),
        minimum=table.integer("minimum", min(24, number), minimum=1, maximum=number),
    )
    table.refuse_others()
    return rule


def _practice(table: Table) -> PracticeConfig:
    for name in ("comprehension", "attempts"):
        if table.has(name):
            table.note(
                name,
                "questions about the instructions as a page, as they are written now",
                'write [[pages]] with name, title, place = "instructions" and attempts, and [[pages.questions]] with '
                'kind = "choice" and accept = { is = "the correct choice" }',
            )
            table.value(name)
    result = PracticeConfig(questions=table.integer("questions", 1, minimum=0, maximum=20))
    table.refuse_others()
    return result


def _checks(table: Table, questions: QuestionsConfig) -> ChecksConfig:
    most = questions.least  # where all people get so far
    result = ChecksConfig(
        attention=table.integer("attention", 1, minimum=0, maximum=most),
        repeated=table.integer("repeated", min(2, most // 2), minimum=0, maximum=most // 2),
        test=table.integer("test", 0, minimum=0, maximum=most),
    )
    table.refuse_others()
    return result


def _arms(table: Table, folder: Path, questions: QuestionsConfig) -> tuple[Arm, ...]:
    found, names = [], planner_names()
    for one in table.tables("arms"):
        arm = Arm(
            name=one.text("name", of="a name"),
            planner=one.choice("planner", names, "adaptive"),
            weight=one.integer("weight", 1, minimum=1, maximum=100),
            prior=_file(one, "prior", folder, "a file of `edpbrl fit-population`", NAMED_PRIORS),
            file=_file(one, "file", folder, "a questions file of `edpbrl design`"),
            options=one.table("options").remaining(),
        )
        if not one.has("planner"):
            one.note("planner", "a planner", "add it, such as planner = 'adaptive'")
        if arm.name and not _NAME.fullmatch(arm.name):
            one.note("name", "a name of at most 40 letters, digits, spaces, dots, hyphens and underscores")
        kind_of(arm).check(arm, one, questions)
        one.refuse_others()
        found.append(arm)
    if not found:
        table.mistakes.append("arms: expected at least one arm, got none; add [[arms]] with a name and a planner")
    repeated = sorted({arm.name for arm in found if [other.name for other in found].count(arm.name) > 1})
    if repeated:
        table.mistakes.append(f"arms: expected a name of its own for each arm, got {repeated[0]!r} twice; rename one")
    return tuple(found)


def _file(table: Table, name: str, folder: Path, of: str, others: Sequence[str] = ()) -> Path | None:
    """A file that must be there, relative to the folder of the study, or one of the ``others``."""
    if not table.has(name):
        table.text(name, "")  # known, but optional
        return None
    text = table.text(name, "", of=of)
    if text in others:
        return Path(text)
    path = folder / text
    if text and not path.is_file():
        table.note(name, f"{of}, relative to {folder}", "check the path")
    return path


def _pictures(table: Table) -> PicturesConfig | None:
    if table.has("renderer"):
        table.table("renderer").remaining()
        table.mistakes.append("renderer: expected the table [pictures], as it is called now, got [renderer]; rename it")
    given = table.has("pictures")
    one = table.table("pictures")
    if not given:
        return None
    if one.has("model"):
        old = one.text("model", "", empty=True)
        one.mistakes.append(f"{one.key('model')}: expected its new name, renderer, got model; write renderer = {old!r}")
    return PicturesConfig(
        renderer=one.text("renderer", "" if one.has("model") else None, of="who draws them"),
        seed=one.integer("seed", 0, minimum=0, maximum=MAX_SEED),
        workers=one.integer("workers", 0, minimum=0, maximum=_MOST_WORKERS) if one.has("workers") else None,
        options=one.remaining(),
    )


def _database(table: Table) -> str | None:
    url = table.text("database", "", of="a database URL")
    if url and not re.match(r"(sqlite:///|postgresql(\+psycopg)?://)", url):
        table.note("database", "a URL that begins with sqlite:/// or postgresql://", "leave it out for a file study.db")
    check_driver(url)
    return url or None


def _texts(folder: Path, languages: tuple[str, ...], pages: Sequence[str], mistakes: list[str]) -> dict[str, str]:
    """The texts of all languages; what is missing is noted. A page has one where there is a file in any language."""
    found = {}
    own = [name for name in pages if any((folder / "texts").glob(f"{name}.*.txt"))]
    for name in (*TEXTS, *own):
        for language in languages:
            path = folder / "texts" / f"{name}.{language}.txt"
            try:
                text = read_text(path).strip()
            except (OSError, ValueError) as error:
                why = "none" if isinstance(error, FileNotFoundError) else f"a file that can't be read ({error})"
                mistakes.append(f"{path}: expected the {name} text in UTF-8, got {why}; write it")
                continue
            if not text:
                mistakes.append(f"{path}: expected the {name} text, got an empty file; write it")
            found[f"{name}.{language}"] = text
    return found


def _images(folder: Path, texts: Sequence[tuple[str, str]], mistakes: list[str]) -> dict[str, str]:
    """The names under which the images of Markdown texts are served, by address; ``texts`` says where each text is."""
    found = {}
    for where, address in dict.fromkeys((where, address) for where, text in texts for address in images_of(text)):
        expected = wrong_image(folder, address)
        if expected is None:
            found[address] = image_name(folder / address)
        else:
            mistakes.append(f"{where}: expected {expected} as an image, got {address!r}; check its path")
    return found


def _checksum(path: Path) -> str:
    with errors_naming(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()
