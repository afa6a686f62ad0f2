"""The vocabulary of a design's questions, from design.json or from the options themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import reading
from edpbrl_gym.cli.errors import UsageError

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "DESIGN",
    "NamedVocabulary",
    "Study",
    "built_in_vocabulary",
    "option_vocabulary",
    "read_study",
    "recognised_vocabulary",
]

DESIGN = "design.json"  # of `edpbrl design`, beside its questions


@dataclass(frozen=True)
class NamedVocabulary:
    """A vocabulary and its source, for messages."""

    vocabulary: Vocabulary
    name: str


@dataclass(frozen=True)
class Study:
    """Contents of the design.json beside a file of questions.

    Attributes:
        file: The design.json.
        encoder: Name of the encoder.
        folder: Name of a built-in vocabulary, or folder of the design's; None for "images".
        split: "all", "train", or "test".
        seed: Seed of the split.
        fingerprint: Fingerprint of the vocabulary; None if the file has none.
        stored: Step names and tokens; None in files of earlier versions, which name the folder only.
    """

    file: Path
    encoder: str
    folder: str | None
    split: str
    seed: Any
    fingerprint: str | None
    stored: dict[str, Any] | None

    def vocabulary(self) -> NamedVocabulary:
        """The vocabulary of the design.

        Raises:
            ValueError: It can't be read, or isn't the one of the questions.
        """
        from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

        place = _place(self.folder)
        expected = f"Expected the vocabulary with which {self.file} was made ({place})"
        try:
            if self.stored is not None:
                vocabulary = Vocabulary(tuple(self.stored["names"]), tuple(map(tuple, self.stored["tokens"])))
            else:
                vocabulary = load_vocabulary(self.folder)
                if self.split == "train":
                    vocabulary = vocabulary.split(int(self.seed))[0]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{expected}, could not read it ({error}); give --vocabulary") from None
        if self.fingerprint not in (None, vocabulary.fingerprint):
            changed = "its files have" if self.stored is None else "the tokens in that file have"
            raise ValueError(f"{expected}, {changed} changed since; give --vocabulary to use them as they are")
        part = "" if self.split == "all" else f", {self.split} split"
        return NamedVocabulary(vocabulary, f"{place}{part} ({self.file})")


def read_study(answers: Path) -> Study | None:
    """Read design.json beside a file of questions; None without one.

    Raises:
        ValueError: It isn't the file of a design.
    """
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
            split=settings.get("split", "all"),
            seed=settings.get("seed", 0),
            fingerprint=document.get("vocabulary_fingerprint"),
            stored=document.get("vocabulary"),
        )


def option_vocabulary(folder: str) -> NamedVocabulary:
    """The vocabulary of --vocabulary."""
    from edpbrl_gym.vocabulary import load_vocabulary

    return NamedVocabulary(load_vocabulary(folder), _place(folder))


def built_in_vocabulary(
    texts: list[list[str]] | None, answers: Path, *, instead: str = "--prior ridge"
) -> NamedVocabulary:
    """The built-in vocabulary whose tokens, or prompts of them, the options are.

    Args:
        texts: Options of every question; None if they are not known.
        answers: Their file, for messages.
        instead: Option that needs no vocabulary, for messages.

    Raises:
        UsageError: There is none, so another vocabulary was used.
    """
    advice = f"give --vocabulary FOLDER, or {instead}, which needs none"
    if texts is None:
        raise UsageError(f"Expected --vocabulary, as {answers} doesn't hold the texts of its options; {advice}")
    found, strangers = _recognised(texts)
    if found is not None:
        return found
    told = [f"{part[:80]!r} in its options is no token of the built-in vocabulary {name!r}" for name, part in strangers]
    raise UsageError(f"Expected --vocabulary, as no {DESIGN} lies beside {answers}, {' and '.join(told)}; {advice}")


def recognised_vocabulary(texts: list[list[str]] | None) -> NamedVocabulary | None:
    """The built-in vocabulary of whose tokens the options are made; None if there is none or texts are not known."""
    return None if texts is None else _recognised(texts)[0]


def _recognised(texts: list[list[str]]) -> tuple[NamedVocabulary | None, list[tuple[str, str]]]:
    """The built-in vocabulary of all texts, or of each the name and a part of a text that is no token of it."""
    from edpbrl_gym.vocabulary import BUILT_IN, SEPARATOR, load_vocabulary
    from edpbrl_gym.vocabulary.tokens import fold

    parts = dict.fromkeys(part for question in texts for text in question for part in text.split(SEPARATOR))
    strangers = []
    for name in BUILT_IN:
        vocabulary = load_vocabulary(name)
        known = {fold(token) for token in vocabulary.all_tokens}
        stranger = next((part for part in parts if fold(part) not in known), None)
        if stranger is None:
            return NamedVocabulary(vocabulary, _place(name)), []
        strangers.append((name, stranger))
    return None, strangers


def _place(folder: str | None) -> str:
    """A built-in vocabulary or a folder in words."""
    from edpbrl_gym.vocabulary import BUILT_IN

    name = "images" if folder is None else str(folder)
    return f"the built-in one, {name!r}" if name in BUILT_IN else name
