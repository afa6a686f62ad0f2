"""The configuration of a study from its file study.toml and the texts beside it."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Literal

from edpbrl_gym._feedback import Feedback
from edpbrl_gym._files import errors_naming
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.study.config import (
    CONFIG,
    FORMATS,
    ORACLE,
    TEXTS,
    Arm,
    ChecksConfig,
    ComprehensionQuestion,
    PracticeConfig,
    QuestionsConfig,
    RendererConfig,
    StudyConfig,
    check_driver,
)
from edpbrl_gym.study.toml_reading import Mistakes, Table, read_document

__all__ = ["config_of", "read_config"]

_FEEDBACKS: tuple[Feedback, ...] = ("prompt", "truncated", "state")
_DTYPES: tuple[Literal["float32", "float16", "bfloat16"], ...] = ("float32", "float16", "bfloat16")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")


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
    """The configuration of a document, as TOML gives it, for a folder with its texts and files.

    Raises:
        Mistakes: The document or a text has mistakes; the error lists all of them.
    """
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
    questions = _questions(table.table("questions"), pictures=table.has("renderer"))
    arms = _arms(table, folder, questions)
    config = StudyConfig(
        folder=folder,
        title=table.text("title", of="the title"),
        languages=languages,
        seed=table.integer("seed", 0, minimum=0, maximum=2**63 - 1),
        completion_code=table.text("completion_code", "", of="the completion code", empty=True),
        database=_database(table),
        consent_version=version,
        texts=_texts(folder, languages, mistakes),
        questions=questions,
        practice=_practice(table.table("practice")),
        checks=_checks(table.table("checks"), questions),
        arms=arms,
        renderer=_renderer(table),
        style=_style(table.table("thanks")),
        files={
            os.path.relpath(one, folder): _checksum(one)
            for arm in arms
            for one in (arm.prior, arm.file)
            if one and one.is_file()
        },
    )
    table.refuse_others()
    return config


def _questions(table: Table, *, pictures: bool) -> QuestionsConfig:
    rule = None
    number = table.integer("number", 30, minimum=1, maximum=1000)
    if table.has("stop_when_sure"):
        rule = _stopping(table.table("stop_when_sure"), number)
    result = QuestionsConfig(
        vocabulary=table.text("vocabulary", "images", of="a built-in vocabulary or a folder"),
        encoder=table.text("encoder", "minilm", of="an encoder"),
        feedback=_feedback(table.choice("feedback", _FEEDBACKS, "prompt")),
        format=table.choice("format", FORMATS, "best"),
        options=table.integer("options", 9 if pictures else 4, minimum=2, maximum=12),
        number=number,
        stopping=rule,
        cant_tell=table.flag("cant_tell", True),
        undo=table.flag("undo", True),
    )
    if result.format == "best_worst" and result.options < 3:
        table.note("options", "at least 3 options with format = 'best_worst'", "ask for the best of 2 instead")
    table.refuse_others()
    return result


def _feedback(name: str) -> Feedback:
    return next(one for one in _FEEDBACKS if one == name)


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
    asked = []
    for one in table.tables("comprehension"):
        choices = one.texts("choices", ("", ""), of="choices", least=2)
        correct = one.integer("correct", 1, minimum=1, maximum=len(choices))
        if not one.has("choices") or not one.has("correct"):
            one.note("choices" if not one.has("choices") else "correct", "a value", "add it")
        asked.append(ComprehensionQuestion(one.text("text", of="the question"), choices, correct - 1))
        one.refuse_others()
    result = PracticeConfig(
        questions=table.integer("questions", 1, minimum=0, maximum=20),
        attempts=table.integer("attempts", 2, minimum=1, maximum=10),
        comprehension=tuple(asked),
    )
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
    from edpbrl_gym.planners.registry import PLANNERS

    found = []
    names = [*PLANNERS, "questions", ORACLE]
    for one in table.tables("arms"):
        arm = Arm(
            name=one.text("name", of="a name"),
            planner=one.choice("planner", names, "adaptive"),
            weight=one.integer("weight", 1, minimum=1, maximum=100),
            prior=_file(one, "prior", folder, "a file of `edpbrl fit-population`"),
            file=_file(one, "file", folder, "a questions file of `edpbrl design`"),
            options=one.table("options").remaining(),
        )
        if not one.has("planner"):
            one.note("planner", "a planner", "add it, such as planner = 'adaptive'")
        if arm.name and not _NAME.fullmatch(arm.name):
            one.note("name", "a name of at most 40 letters, digits, spaces, dots, hyphens and underscores")
        if (arm.planner == "questions") != one.has("file"):
            one.note("file", "a file for the planner 'questions', and for no other", "add it, or take it out")
        if arm.planner == ORACLE and (arm.prior is not None or arm.options):
            refused = "prior" if arm.prior is not None else "options"
            one.note(refused, "none with planner = 'oracle', whose questions come from HumanOracle", "take it out")
        if arm.planner in ("questions", ORACLE) and questions.stopping is not None:
            one.note("planner", "a planner that learns, as [questions.stop_when_sure] asks how sure it is")
        one.refuse_others()
        found.append(arm)
    if not found:
        table.mistakes.append("arms: expected at least one arm, got none; add [[arms]] with a name and a planner")
    repeated = sorted({arm.name for arm in found if [other.name for other in found].count(arm.name) > 1})
    if repeated:
        table.mistakes.append(f"arms: expected a name of its own for each arm, got {repeated[0]!r} twice; rename one")
    return tuple(found)


def _file(table: Table, name: str, folder: Path, of: str) -> Path | None:
    """A file that must be there, relative to the folder of the study."""
    if not table.has(name):
        table.text(name, "")  # known, but optional
        return None
    text = table.text(name, "", of=of)
    path = folder / text
    if text and not path.is_file():
        table.note(name, f"{of}, relative to {folder}", "check the path")
    return path


def _renderer(table: Table) -> RendererConfig | None:
    given = table.has("renderer")
    one = table.table("renderer")
    if not given:
        return None
    if one.has("size") and one.integer("size", 512, minimum=64, maximum=2048) % 8:
        one.note("size", "a multiple of 8 pixels")
    result = RendererConfig(
        model=one.text("model", of="a text-to-image model"),
        size=one.integer("size", 512, minimum=64, maximum=2048),
        steps=one.integer("steps", 25, minimum=1, maximum=1000),
        seed=one.integer("seed", 0, minimum=0),
        guidance=one.number("guidance", 7.5, minimum=0.0, maximum=100.0),
        dtype=_dtype(one.choice("dtype", _DTYPES, "float32")),
    )
    one.refuse_others()
    return result


def _dtype(name: str) -> Literal["float32", "float16", "bfloat16"]:
    return next(one for one in _DTYPES if one == name)


def _style(table: Table) -> int:
    number = table.integer("style", 4, minimum=0, maximum=12)
    table.refuse_others()
    return number


def _database(table: Table) -> str | None:
    url = table.text("database", "", of="a database URL")
    if url and not re.match(r"(sqlite:///|postgresql(\+psycopg)?://)", url):
        table.note("database", "a URL that begins with sqlite:/// or postgresql://", "leave it out for a file study.db")
    check_driver(url)
    return url or None


def _texts(folder: Path, languages: tuple[str, ...], mistakes: list[str]) -> dict[str, str]:
    """The texts of all languages; what is missing is noted."""
    found = {}
    for name in TEXTS:
        for language in languages:
            path = folder / "texts" / f"{name}.{language}.txt"
            try:
                with errors_naming(path):
                    text = path.read_text(encoding="utf-8-sig").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = "none" if isinstance(error, FileNotFoundError) else f"a file that can't be read ({error})"
                mistakes.append(f"{path}: expected the {name} text in UTF-8, got {why}; write it")
                continue
            if not text:
                mistakes.append(f"{path}: expected the {name} text, got an empty file; write it")
            found[f"{name}.{language}"] = text
    return found


def _checksum(path: Path) -> str:
    with errors_naming(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()
