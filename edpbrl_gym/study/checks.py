"""Checks of a study before it begins: everything is loaded, and every arm asks its first question."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from edpbrl_gym.features import TextEncoder
from edpbrl_gym.study.ahead import known_options
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import CONFIG, Arm, StudyConfig
from edpbrl_gym.study.config_reading import Mistakes
from edpbrl_gym.study.forms.pages import Page
from edpbrl_gym.study.left_to_do import left_to_do
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.pictures import study_renderer
from edpbrl_gym.vocabulary import SEPARATOR

__all__ = ["ArmPlan", "Plan", "examine"]

_WORDS_PER_SECOND = 4.0  # silent reading of English, 238 words a minute (Brysbaert, 2019)
_SECONDS_PER_PICTURE = 1.0  # an assumption, as is the next one
_MINUTES_BEFORE = 2.0  # consent and instructions
_SECONDS_PER_PHOTO = 20.0  # of one's own, to find, hand in and rate it


@dataclass(frozen=True)
class ArmPlan:
    """What an arm does: its share of the participants, and as ``ArmKind.first_question``."""

    arm: Arm
    share: float
    texts: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True)
class Plan:
    """What a study will be."""

    questions: int  # largest number of questions that a participant sees, with practice, checks and repeats
    minutes: float  # estimated minutes for them, with consent and instructions
    arms: tuple[ArmPlan, ...]
    untranslated: tuple[tuple[str, int, str], ...] = ()  # by language: how many texts are shown as they are, and one
    pictures: tuple[int, int] | None = None  # number of pictures that can be drawn ahead, and how many are not
    notes: tuple[str, ...] = ()  # what may have been overlooked


def examine(config: StudyConfig, *, encoder: TextEncoder | None = None) -> tuple[Plan, Materials]:
    """Load everything that a study needs, and ask the first question of each arm.

    Raises:
        Mistakes: Something can't be loaded, or an arm can't ask; the error lists all of them.
    """
    mistakes: list[str] = []
    try:
        materials = Materials(config, encoder=encoder)
        materials.tokens  # noqa: B018 - checks that the encoder tells them apart
    except (ValueError, OSError, ImportError, TypeError) as error:
        raise Mistakes(str(config.folder / CONFIG), [f"questions: {error}"]) from None
    total = sum(arm.weight for arm in config.arms)
    plans = []
    for index, arm in enumerate(config.arms, start=1):
        try:
            plans.append(ArmPlan(arm, arm.weight / total, *kind_of(arm).first_question(arm, materials)))
        except (ValueError, OSError, ImportError, TypeError) as error:
            mistakes.append(f"arms[{index}] ({arm.name}): {error}")
    pictures = None
    if config.pictures is not None:
        try:
            with study_renderer(config, config.pictures) as renderer:
                renderer.renderer.load()
                if not mistakes:
                    known = known_options(materials)
                    pictures = renderer.missing(known, seed=config.pictures.seed)
        except (ValueError, OSError, ImportError, TypeError) as error:
            mistakes.append(f"pictures: {error}")
    untranslated = _untranslated(config, materials, mistakes)
    if mistakes:
        raise Mistakes(str(config.folder / CONFIG), mistakes)
    questions = config.most_choices
    notes = tuple(left_to_do(config, materials))
    return Plan(questions, _minutes(config, questions, plans), tuple(plans), untranslated, pictures, notes), materials


def _untranslated(config: StudyConfig, materials: Materials, mistakes: list[str]) -> tuple[tuple[str, int, str], ...]:
    """What is shown as it is in languages that have translations, or are not the first; unknown originals are noted."""
    tokens = [] if config.pictures is not None else [token for step in materials.vocabulary.tokens for token in step]
    of_pages = [
        text for page in config.pages for text in page.parts if page.text != text or not _has_file(config, page)
    ]
    listed = [text for page in config.pages for one in page.questions for text in getattr(one, "choices", ())]
    own = dict.fromkeys([config.title, *of_pages, *tokens])
    words = {token for step in materials.vocabulary.tokens for token in step}
    known = {*own, *listed, *words}
    is_closed = not any(kind_of(arm).posted for arm in config.arms)  # an oracle's texts are known to nobody
    found = []
    for language in config.languages:
        for text in config.translations.get(language, {}):
            if is_closed and text not in known and not words.issuperset(text.split(SEPARATOR)):
                close = difflib.get_close_matches(text, known, 1)
                remedy = f"did you mean {close[0]!r}?" if close else "take it out"
                path = config.folder / "translations" / f"{language}.csv"
                mistakes.append(f"{path}: expected a token, or a text of a page, got the unknown {text!r}; {remedy}")
        shown = config.shown_in(language)
        of_instruments = {text for page in config.pages for text in page.translations.get(language, {})}
        missing = [text for text in own if text not in shown and text not in of_instruments]
        if missing and (language != config.languages[0] or language in config.translations):
            found.append((language, len(missing), missing[0]))
    return tuple(found)


def _has_file(config: StudyConfig, page: Page) -> bool:
    return f"{page.name}.{config.languages[0]}" in config.texts


def _minutes(config: StudyConfig, questions: int, plans: list[ArmPlan]) -> float:
    """Minutes for a participant: reading or looking, then answering."""
    options = config.questions.options
    words = sum(len(text.split()) for plan in plans for text in plan.texts) / (len(plans) * options)
    looking = _SECONDS_PER_PICTURE if config.pictures is not None else words / _WORDS_PER_SECOND
    answering = config.questions.answers.seconds(options)
    pages = 0.0
    for page in config.pages:
        reading = sum(len(text.split()) for text in (page.text, *(one.text for one in page.questions)))
        once = reading / _WORDS_PER_SECOND + sum(one.seconds for one in page.questions)
        pages += once * page.times(config.most_choices)
    if config.own_photos is not None:
        pages += config.own_photos.least * _SECONDS_PER_PHOTO
    return _MINUTES_BEFORE + (questions * (options * looking + answering) + pages) / 60.0
