"""What a researcher may have overlooked before a study begins: none of it keeps a study from running."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from edpbrl_gym.features.notices import notices_of
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.own_photos import OWN_PHOTOS

__all__ = ["left_to_do"]

_BEGINNING = 60  # characters of a paragraph in a message


def left_to_do(config: StudyConfig, materials: Materials) -> Iterator[str]:
    """Paragraphs that the template asks the researcher to write, and words that the encoder does not read."""
    folder = files("edpbrl_gym.study") / "new_study" / "texts"
    templates = [(folder / f"{name}.en.txt").read_text(encoding="utf-8") for name in ("consent", OWN_PHOTOS)]
    gaps = [one for text in templates for one in _paragraphs(text) if one.startswith("(")]
    for name, text in config.texts.items():
        for paragraph in _paragraphs(text):
            if paragraph in gaps:
                yield f"texts/{name}.txt is not finished: {paragraph[:_BEGINNING]}..."
    notices = notices_of(materials.encoder)
    if notices is not None and (found := notices.reads_poorly(materials.vocabulary.all_tokens)):
        yield found


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
