"""The folder of `edpbrl ask`: what its questions are about, and its session.

OUT/ask.json            vocabulary, options, format, planner, encoder and seed, written before the first question
OUT/session/            the session: every question and answer (`edpbrl_gym.session.journal`)
OUT/answers.parquet, OUT/taste.safetensors, OUT/prompts.txt    written whenever the person stops
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import reading
from edpbrl_gym.cli.answers import check_encoder_of_population, check_population_file
from edpbrl_gym.cli.console import UsageError, bad_arguments, shown

if TYPE_CHECKING:
    from edpbrl_gym._validation import Feedback
    from edpbrl_gym.session import Session, StoppingRule
    from edpbrl_gym.session.typed import AnswerForm

__all__ = [
    "ANSWERS",
    "PROMPTS",
    "SESSION",
    "SETTINGS",
    "TASTE",
    "AskSettings",
    "begun",
    "chosen_settings",
    "open_session",
    "stopping_rule",
    "write_prompts",
]

SETTINGS, SESSION = "ask.json", "session"
ANSWERS, TASTE, PROMPTS = "answers.parquet", "taste.safetensors", "prompts.txt"
_FORMAT = "edpbrl-gym ask 1"


@dataclass(frozen=True)
class AskSettings:
    """What the questions are about; the same as long as they go on. ``prior`` is a name, or a population's file."""

    vocabulary: str = "images"
    num_options: int = 9
    format: str = "best"
    feedback: Feedback = "prompt"
    planner: str = "adaptive"
    prior: str | None = None
    encoder: str = "minilm"
    seed: int = 0
    levels: int | None = None

    def document(self) -> dict[str, Any]:
        """The settings for the file; levels where they were given."""
        return {name: value for name, value in asdict(self).items() if name != "levels" or value is not None}


def begun(out: Path) -> bool:
    """Whether questions have been asked in a folder."""
    return (out / SESSION / "session.json").is_file()


def chosen_settings(out: Path, given: Mapping[str, Any]) -> AskSettings:
    """The settings of a folder: those with which its questions began, else those given, else the defaults."""
    from edpbrl_gym.estimation.priors import PRIORS
    from edpbrl_gym.vocabulary import BUILT_IN

    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("vocabulary", "prior"):
        if name in chosen:
            path = str(chosen[name])  # a folder or file whose name must not depend on the working folder
            known = BUILT_IN if name == "vocabulary" else PRIORS
            chosen[name] = path if path in known else str(Path(path).expanduser().resolve())
    if not begun(out):
        for name in (ANSWERS, TASTE, PROMPTS, SESSION):
            if (out / name).exists():
                raise UsageError(
                    f"Expected no {name} in {out}, as no questions were asked there; choose another --out, or move it"
                )
        return AskSettings(**chosen)
    settings = _read(out / SETTINGS)
    for name, value in chosen.items():
        before = getattr(settings, name)
        if value != before:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"Expected {'no ' + option if before is None else f'{option} {before}'}, with which the questions in "
                f"{shown(out)} began, got {value}; leave it out to go on, or choose another --out for new questions"
            )
    return settings


def write_prompts(out: Path, prompts: Sequence[str]) -> None:
    """Write the prompts of the last screen, one a line."""
    from edpbrl_gym._places import write_atomically

    write_atomically(out / PROMPTS, lambda path: path.write_text("\n".join([*prompts, ""]), encoding="utf-8"))


def _read(path: Path) -> AskSettings:
    advice = "restore the file from a backup, or choose another --out for new questions"
    with reading("the settings of `edpbrl ask`", path, advice=advice):
        document = json.loads(path.read_text(encoding="utf-8"))
        document.setdefault("levels", None)
        if document.pop("format_of_file") != _FORMAT or set(document) != {field.name for field in fields(AskSettings)}:
            raise ValueError("another version wrote it")
        for name, default in asdict(AskSettings()).items():
            kinds = {"prior": (str, type(None)), "levels": (int, type(None))}.get(name, (type(default),))
            if type(document[name]) not in kinds:
                raise ValueError(f"{name} is {document[name]!r}")
        return AskSettings(**document)


# -- the session -----------------------------------------------------------------------------------------------------


def stopping_rule() -> StoppingRule:
    """When a person, who gives 10 to 40 answers, has given enough (docs/ask.md)."""
    from edpbrl_gym.session import StoppingRule

    return StoppingRule(target=0.85, gain=0.015, lookahead=10, minimum=12)


def open_session(out: Path, settings: AskSettings, form: AnswerForm) -> Session:
    """Begin the session of a folder, or go on with it."""
    from edpbrl_gym._places import write_atomically
    from edpbrl_gym.estimation.priors import PRIORS, load_prior, make_prior
    from edpbrl_gym.features import embed_tokens, load_encoder
    from edpbrl_gym.planners import make_planner
    from edpbrl_gym.session import Session
    from edpbrl_gym.session.journal import read_settings
    from edpbrl_gym.vocabulary import load_vocabulary

    resumed = begun(out)
    vocabulary = load_vocabulary(settings.vocabulary)
    if resumed and read_settings(out / SESSION).get("vocabulary_fingerprint") != vocabulary.fingerprint:
        raise ValueError(
            f"Expected the tokens of {settings.vocabulary} as they were when the questions in {shown(out)} began, they "
            "have changed since; restore them, or choose another --out for new questions"
        )
    encoder = load_encoder(settings.encoder)
    prior: Any = settings.prior
    if prior is not None and prior not in PRIORS:
        file = Path(prior)
        with bad_arguments():
            check_population_file(file)
        prior = load_prior(file)
        known = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        check_encoder_of_population(prior, known, encoder.dimension, file)
    tokens = embed_tokens(vocabulary, encoder, progress=True)
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
        model=form.format,
        **extra,
    )
    if not planner.distinct:
        raise UsageError(f"Expected a --planner for people, {settings.planner} may show an option twice")
    shared: dict[str, Any] = {"vocabulary": vocabulary, "encoder": encoder, "prior": prior, "model": form.format}
    shared["stopping"] = stopping_rule()
    if resumed:  # another rounding of the encoder must not keep a person from going on: their answers are recorded
        return Session.resume(out / SESSION, planner, exact=False, **shared)
    document = json.dumps({"format_of_file": _FORMAT, **settings.document()}, indent=2)
    write_atomically(out / SETTINGS, lambda path: path.write_text(document + "\n", encoding="utf-8"))
    return Session(
        planner,
        num_options=settings.num_options,
        feedback=settings.feedback,
        seed=settings.seed,
        who="you",
        folder=out / SESSION,
        **shared,
    )
