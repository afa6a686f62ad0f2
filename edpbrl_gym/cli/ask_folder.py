"""The folder of `edpbrl ask`: what its questions are about, and its session.

OUT/ask.json            what is asked about, options, format, planner, encoder, seed: written before the first question
OUT/opening.jsonl       first answers, as long as there is no session (`edpbrl_gym.asking.opening`)
OUT/session/            the session: every question and answer (`edpbrl_gym.session.journal`)
OUT/answers.parquet, OUT/taste.safetensors, OUT/prompts.txt    written whenever the person stops
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import reading
from edpbrl_gym.asking.ending import ANSWERS, PROMPTS, TASTE
from edpbrl_gym.cli.answers import check_encoder_of_population, check_population_file
from edpbrl_gym.cli.console import UsageError, bad_arguments, shown

if TYPE_CHECKING:
    from edpbrl_gym._validation import Feedback
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.likelihood import AnswerFormat
    from edpbrl_gym.session import Session, StoppingRule
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "ANSWERS",
    "OPENING",
    "PROMPTS",
    "SESSION",
    "SETTINGS",
    "TASTE",
    "AskSettings",
    "begun",
    "chosen_settings",
    "open_session",
    "stopping_rule",
    "write_settings",
]

SETTINGS, OPENING, SESSION = "ask.json", "opening.jsonl", "session"
_FORMAT = "edpbrl-gym ask 1"


@dataclass(frozen=True)
class AskSettings:
    """What the questions are about; the same as long as they go on. ``prior`` is a name, or a population's file.

    ``pool`` is the number of prompts that are drawn ahead, ``left_out`` those of them that have no picture to learn
    from, ``pictures`` a folder of pictures, ``renderer`` who draws, with its options.
    """

    vocabulary: str = "images"
    num_options: int = 9
    format: str = "best"
    feedback: Feedback = "prompt"
    planner: str = "adaptive"
    prior: str | None = None
    encoder: str = "minilm"
    seed: int = 0
    levels: int | None = None
    subject: str | None = None
    pictures: str | None = None
    pool: int | None = None
    renderer: str | None = None
    renderer_options: dict[str, Any] | None = None
    features: str | None = None
    left_out: list[str] | None = None


_KINDS = {"levels": int, "pool": int, "renderer_options": dict, "left_out": list}
"""Types of settings that may be None; of all others it is a text."""


def begun(out: Path) -> bool:
    """Whether questions have been asked in a folder."""
    return (out / SESSION / "session.json").is_file() or (out / OPENING).is_file()


def chosen_settings(out: Path, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> AskSettings:
    """The settings of a folder: those with which its questions began, else those given, else the defaults.

    Args:
        out: The folder.
        given: By name; None: not given.
        defaults: Others than those of ``AskSettings``, for new questions.
    """
    from edpbrl_gym.estimation.priors import PRIORS
    from edpbrl_gym.vocabulary import BUILT_IN

    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("vocabulary", "prior", "pictures"):
        if name in chosen:
            path = str(chosen[name])  # a folder or file whose name must not depend on the working folder
            known: Collection[str] = BUILT_IN if name == "vocabulary" else PRIORS if name == "prior" else ()
            chosen[name] = path if path in known else str(Path(path).expanduser().resolve())
    if not begun(out):
        for name in (ANSWERS, TASTE, PROMPTS, SESSION):
            if (out / name).exists():
                raise UsageError(
                    f"Expected no {name} in {out}, as no questions were asked there; choose another --out, or move it"
                )
        return AskSettings(**{**(defaults or {}), **chosen})
    settings = _read(out / SETTINGS)
    for name, value in chosen.items():
        before = getattr(settings, name)
        if value != before:
            names = {"subject": "the subject", "renderer_options": "--renderer-option"}
            option = names.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(
                f"Expected {'no ' + option if before is None else f'{option} {before}'}, with which the questions in "
                f"{shown(out)} began, got {value}; leave it out to go on, or choose another --out for new questions"
            )
    return settings


def write_settings(out: Path, settings: AskSettings) -> None:
    """Write the settings of questions that begin."""
    from edpbrl_gym._places import write_atomically

    document = json.dumps({"format_of_file": _FORMAT, **asdict(settings)}, indent=2)
    write_atomically(out / SETTINGS, lambda path: path.write_text(document + "\n", encoding="utf-8"))


def _read(path: Path) -> AskSettings:
    advice = "restore the file from a backup, or choose another --out for new questions"
    with reading("the settings of `edpbrl ask`", path, advice=advice):
        document = json.loads(path.read_text(encoding="utf-8"))
        document = {name: None for name, default in asdict(AskSettings()).items() if default is None} | document
        if document.pop("format_of_file") != _FORMAT or set(document) != {field.name for field in fields(AskSettings)}:
            raise ValueError("another version wrote it")
        for name, default in asdict(AskSettings()).items():
            kinds = (_KINDS.get(name, str), type(None)) if default is None else (type(default),)
            if type(document[name]) not in kinds:
                raise ValueError(f"{name} is {document[name]!r}")
        return AskSettings(**document)


# -- the session -----------------------------------------------------------------------------------------------------


def stopping_rule() -> StoppingRule:
    """When a person, who gives 10 to 40 answers, has given enough (docs/ask.md)."""
    from edpbrl_gym.session import StoppingRule

    return StoppingRule(target=0.85, gain=0.015, lookahead=10, minimum=12)


def open_session(
    out: Path,
    settings: AskSettings,
    format: AnswerFormat,
    vocabulary: Vocabulary | None = None,
    encoder: TextEncoder | None = None,
    *,
    progress: bool = True,
) -> Session:
    """Go on with the session of a folder, or begin one, which has no folder yet.

    Args:
        out: The folder.
        settings: What is asked about.
        format: Format of the answers.
        vocabulary: A pool; None: the vocabulary of the settings.
        encoder: Encoder of the options; None: that of the settings.
        progress: Whether to show that tokens are being embedded.
    """
    from edpbrl_gym.estimation.priors import PRIORS, load_prior, make_prior
    from edpbrl_gym.features import embed_tokens, load_encoder
    from edpbrl_gym.planners import make_planner
    from edpbrl_gym.session import Session
    from edpbrl_gym.session.journal import read_settings
    from edpbrl_gym.vocabulary import load_vocabulary

    resumed = (out / SESSION / "session.json").is_file()
    vocabulary = load_vocabulary(settings.vocabulary) if vocabulary is None else vocabulary
    if resumed and read_settings(out / SESSION).get("vocabulary_fingerprint") != vocabulary.fingerprint:
        raise ValueError(
            f"Expected {_named(settings)} as when the questions in {shown(out)} began, "
            "they have changed since; restore them, or choose another --out for new questions"
        )
    encoder = load_encoder(settings.encoder) if encoder is None else encoder
    prior: Any = settings.prior
    if prior is not None and prior not in PRIORS:
        file = Path(prior)
        with bad_arguments():
            check_population_file(file)
        prior = load_prior(file)
        known = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        check_encoder_of_population(prior, known, encoder.dimension, file)
    tokens = embed_tokens(vocabulary, encoder, progress=progress)
    prior = prior if prior is None else make_prior(prior, tokens)
    extra: dict[str, Any] = {"distinct": True} if settings.planner == "random" else {}
    planner = make_planner(
        settings.planner,
        vocabulary,
        encoder,
        feedback=settings.feedback,
        prior=prior,
        num_options=settings.num_options,
        seed=settings.seed,
        model=format,
        **extra,
    )
    if not planner.distinct:
        raise UsageError(f"Expected a --planner for people, {settings.planner} may show an option twice")
    shared: dict[str, Any] = {"vocabulary": vocabulary, "encoder": encoder, "prior": prior, "model": format}
    shared["stopping"] = stopping_rule()
    if resumed:  # another rounding of the encoder must not keep a person from going on: their answers are recorded
        return Session.resume(out / SESSION, planner, exact=False, **shared)
    return Session(
        planner,
        num_options=settings.num_options,
        feedback=settings.feedback,
        seed=settings.seed,
        who="you",
        **shared,
    )


def _named(settings: AskSettings) -> str:
    what, where = ("tokens", settings.vocabulary) if settings.pictures is None else ("pictures", settings.pictures)
    return f"the {what} of {where}"
