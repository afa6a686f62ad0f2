"""The vocabulary of a design's questions, from design.json or from the options themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edpbrl_gym._files import reading
from edpbrl_gym.cli.console import UsageError

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "DESIGN",
    "NamedVocabulary",
    "Study",
    "option_vocabulary",
    "read_study",
    "recognised_vocabulary",
    "words_of_answers",
]

DESIGN = "design.json"  # of `edpbrl design`, beside its questions


class NamedVocabulary(NamedTuple):
    """A vocabulary and its source, for messages."""

    vocabulary: Vocabulary
    name: str


class Study(NamedTuple):
    """Contents of a design.json."""

    file: Path  # the design.json
    encoder: str
    folder: str | None  # name of a built-in vocabulary, or folder of the design's; None for "images"
    split: str  # "all", "train", or "test"
    fingerprint: str  # of the vocabulary
    stored: dict[str, Any]  # step names and tokens

    def vocabulary(self) -> NamedVocabulary:
        """The vocabulary of the design."""
        from edpbrl_gym.vocabulary import Vocabulary

        source = _source(self.folder)
        expected = f"Expected the vocabulary with which {self.file} was made ({source})"
        try:
            vocabulary = Vocabulary(tuple(self.stored["names"]), tuple(map(tuple, self.stored["tokens"])))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{expected}, could not read it ({error}); give --vocabulary") from None
        if self.fingerprint != vocabulary.fingerprint:
            raise ValueError(
                f"{expected}, the tokens in that file have changed since; give --vocabulary to use them as they are"
            )
        part = "" if self.split == "all" else f", {self.split} split"
        return NamedVocabulary(vocabulary, f"{source}{part} ({self.file})")


def read_study(answers: Path) -> Study | None:
    """Read design.json beside a file of questions; None without one."""
    file = answers.parent / DESIGN
    if not file.is_file():
        return None
    advice = "move the answers to another folder and give --encoder and --vocabulary"
    with reading("the settings of a design", file, advice=advice):
        document = json.loads(file.read_text(encoding="utf-8"))
        settings = document["settings"]
        return Study(
            file=file,
            encoder=str(settings["encoder"]),
            folder=settings.get("vocabulary"),
            split=str(settings["split"]),
            fingerprint=str(document["vocabulary_fingerprint"]),
            stored=document["vocabulary"],
        )


def option_vocabulary(folder: str) -> NamedVocabulary:
    """The vocabulary of --vocabulary."""
    from edpbrl_gym.vocabulary import load_vocabulary

    return NamedVocabulary(load_vocabulary(folder), _source(folder))


def words_of_answers(
    texts: list[list[str]] | None, answers: Path, *, instead: str = "--prior ridge"
) -> NamedVocabulary:
    """The built-in vocabulary whose tokens, or prompts of them, the options are; else the phrases of the options."""
    from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary
    from edpbrl_gym.vocabulary.tokens import fold, refusal

    advice = f"give --vocabulary FOLDER, or {instead}, which needs none"
    if texts is None:
        raise UsageError(f"Expected --vocabulary, as {answers} doesn't hold the texts of its options; {advice}")
    found = recognised_vocabulary(texts)
    if found is not None:
        return found
    steps: list[dict[str, str]] = []  # phrases between commas, by their position in the option
    for text in dict.fromkeys(text for question in texts for text in question):
        phrases = [" ".join(phrase.split()) for phrase in text.split(SEPARATOR)]
        for step, phrase in enumerate(phrase for phrase in phrases if fold(phrase) and refusal(phrase) is None):
            if step == len(steps):
                steps.append({})
            steps[step].setdefault(fold(phrase), phrase)
    count = len({phrase for step in steps for phrase in step})
    if count < 2:
        raise UsageError(f"Expected --vocabulary, as the options of {answers} have not two phrases; {advice}")
    names = tuple(f"phrase {number}" for number in range(1, len(steps) + 1))
    vocabulary = Vocabulary(names, tuple(tuple(step.values()) for step in steps))
    return NamedVocabulary(vocabulary, f"the {count} phrases of the options (--vocabulary gives others)")


def recognised_vocabulary(texts: list[list[str]] | None) -> NamedVocabulary | None:
    """The built-in vocabulary of whose tokens the options are made; None if there is none or texts are not known."""
    from edpbrl_gym.vocabulary import BUILT_IN, SEPARATOR, load_vocabulary
    from edpbrl_gym.vocabulary.tokens import fold

    if texts is None:
        return None
    parts = dict.fromkeys(part for question in texts for text in question for part in text.split(SEPARATOR))
    for name in BUILT_IN:
        vocabulary = load_vocabulary(name)
        known = {fold(token) for token in vocabulary.all_tokens}
        if all(fold(part) in known for part in parts):
            return NamedVocabulary(vocabulary, _source(name))
    return None


def _source(folder: str | None) -> str:
    from edpbrl_gym.vocabulary import BUILT_IN

    name = "images" if folder is None else str(folder)
    return f"the built-in one, {name!r}" if name in BUILT_IN else name
