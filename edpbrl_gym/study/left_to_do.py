"""What a researcher may have overlooked before a study begins: none of it keeps a study from running."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files

from edpbrl_gym.features.notices import notices_of
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.own_photos import OWN_PHOTOS

__all__ = ["left_to_do"]

_BEGINNING = 60  # characters of a paragraph in a message


def left_to_do(config: StudyConfig, materials: Materials) -> Iterator[str]:
    """Paragraphs that the template asks the researcher to write, its texts where they do not fit, words not read."""
    template = files("edpbrl_gym.study") / "new_study"
    folder = template / "texts"
    templates = [(folder / f"{name}.en.txt").read_text(encoding="utf-8") for name in ("consent", OWN_PHOTOS)]
    gaps = [one for text in templates for one in _paragraphs(text) if one.startswith("(")]
    for name, text in config.texts.items():
        for paragraph in _paragraphs(text):
            if paragraph in gaps:
                yield f"texts/{name}.txt is not finished: {paragraph[:_BEGINNING]}..."
    about_texts = _paragraphs((folder / "instructions.en.txt").read_text(encoding="utf-8"))[0]
    for name, text in config.texts.items():
        if config.pictures is not None and name.startswith("instructions.") and about_texts in _paragraphs(text):
            yield f"texts/{name}.txt speaks of descriptions, as the template does, but this study shows pictures"
    [page] = tomllib.loads((template / "study.toml").read_text(encoding="utf-8"))["pages"]
    written = {question["text"] for question in page["questions"]}
    for one in config.pages:
        left = [text for text in one.parts if text in written]
        for language in config.languages:
            if left and language != "en" and left[0] not in config.shown_in(language):
                yield f"the page {one.name!r} is still the template's, in English; write it in {language}"
    notices = notices_of(materials.encoder)
    if notices is not None and (found := notices.reads_poorly(materials.vocabulary.all_tokens)):
        yield found


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
