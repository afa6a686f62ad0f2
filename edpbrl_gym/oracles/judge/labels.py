"""The label that an answer names beyond doubt.

One JSON object is asked for, but small models also write the label alone, in bold, in a sentence or with an
explanation. Read are objects with the field ``preference`` and lines that only state a label, if all name the same one.
Text around them must not put it in doubt: no other label that is preferred, no correction, no condition, no negation of
the label. Everything else is left to a second request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from edpbrl_gym.oracles.judge.messages import LABELS
from edpbrl_gym.oracles.judge.reading import answer_part

__all__ = ["read_answer"]

_FENCE = re.compile(r"(?:```|~~~)(?:json|text|txt|plaintext|python|yaml|javascript)?", re.IGNORECASE)
_LATEX = re.compile(r"\\(?:boxed|text|textbf|mathbf|mathrm)\s*\{([^{}]*)\}")
_LOOSE = re.compile(  # {preference: B}, {'preference': 'B'}, {"preference": "B",}
    r"\{\s*[\"'\u201c\u2018]?preference[\"'\u201d\u2019]?\s*[:=]\s*[\"'\u201c\u2018]?([A-Za-z])[\"'\u201d\u2019]?"
    r"\s*,?\s*\}",
    re.IGNORECASE,
)
_DECORATION = re.compile(r"[*_`\"'\u201c\u201d\u2018\u2019#$]+")
_FIELDS = ("answer", "label", "choice", "verdict", "selection", "option", "candidate")
_DECLARING = frozenset("answer preference choice verdict selection".split())
_NOUNS = _DECLARING | frozenset("option candidate label image picture".split())
_LEAD = _NOUNS | frozenset(
    "the my i so thus therefore sure okay final best preferred chosen correct selected winner pick is choose select "
    "prefer go with vote for response".split()
)
# the words of a line that announces an answer, such as "Based on the style guidance, the best candidate is:"
_ANNOUNCING = _LEAD | frozenset(
    "here heres s are certainly ok of course json object one in requested required as fits fit fitting matches match "
    "most style guidance based on this it its client clients your to according that a reply output format form".split()
)
_ANNOUNCES = _DECLARING | frozenset("best pick choose select prefer winner here heres sure certainly json".split())
_LEFTOVERS = frozenset("assistant model s inst tool calls".split())  # of chat templates
_EXPLAINS = re.compile(  # how a sentence behind an answer begins
    r"\W*(?:(?:explanation|reason\w*|rationale|justification|because|why|as|since|it|this|the|confidence"
    r"|i (?:chose|choose|picked|selected|prefer))\b|(?i:(?:candidate|option|image|picture|label)s?\s+)?(?-i:[A-Z])\b)",
    re.IGNORECASE,
)
_THE = re.compile(r"\W*the\b", re.IGNORECASE)
_NEGATION = re.compile(r"\b(?:not|no|never|nor|worst|least|reject\w*|avoid\w*)\b|n['\u2019]t\b", re.IGNORECASE)
_TURN = re.compile(  # corrections, conditions, questions
    r"\b(?:wait|actually|hm+|however|instead|correct(?:ion|ed)|mistake\w*|sorry|scratch|thought|reflection|unless|if"
    r"|would|could|should|might|may|maybe|perhaps|unsure|unclear|uncertain|unknown|cannot|unable|none|neither|either"
    r"|tied?|equal\w*|depends|wrong\w*|incorrect\w*|revis\w*|reconsider\w*|oops|nope|discard\w*|ignore\w*|strike"
    r"|apolog\w*|misread|change\w*|update\w*|edit\w*|check\w*|false|tests?|placeholder|replace\w*|kidding|random\w*"
    r"|illustrat\w*|previous\w*|second|other|another)\b|\?",
    re.IGNORECASE,
)
_POOR = re.compile(  # of a label itself: no reason to choose it
    r"\b(?:too|poor\w*|low|bad\w*|fail\w*|lack\w*|off|exclud\w*|eliminat\w*|weak\w*|less|miss\w*|out|unsuitable"
    r"|hat(?:e[sd]?|ing)|dislik\w*|contradict\w*|clash\w*|conflict\w*|violat\w*|oppos\w*|against|ruin\w*|inferior)\b",
    re.IGNORECASE,
)
_SHOWN = re.compile(
    r"\b(?:examples?|e\.g|format|form|template|sample|like|such|careless|but|than|or|vs|versus|opposite|except|bad|let"
    r"|think\w*|reason\w*|analy\w*|consider\w*|first|impression|draft)\b",
    re.IGNORECASE,
)
_PREFERRED = re.compile(
    r"\b(?:answer|prefer\w*|choice|choose|chose|chosen|verdict|select\w*|pick\w*|winner|wins|best|better|vote|go|decid\w*"
    r"|correct|right|final)\b",
    re.IGNORECASE,
)
_MENTION = re.compile(
    # not the article of "A dark alley", behind which stands no verb and no conjunction
    r"(?<![\w'\u2019])(?!A (?!\w*(?:[^s\W]s|ed)\b|(?:did|had|got|won|fit|came|went|beat|will|can|and|or|over|to|as)\b)"
    r"[a-z]{2,})([A-Z])(?![\w'\u2019])|\b(?:option|candidate|label|image|picture)s?\s+([a-z])\b"
)
_CLOSED = re.compile(r"[\s\])}.,;*_`\"']*(?:\n|\{|\Z)")  # behind an object: its line ends, or another object begins
_PRONOUN = re.compile(r"I (?:choose|pick|select|prefer|go|vote)\b")
_LONGEST_LEAD = 100  # characters before an answer that text follows: more may be thoughts without markers


def read_answer(text: str, num_options: int, *, cut: bool = False, candidates: Sequence[str] = ()) -> int | None:
    """The position of the label that a reply names beyond doubt, None if it names none or leaves doubt.

    Of a reply that was cut only an answer that is one whole object counts. Where the texts of the candidates are known,
    in the order of their labels, "B: text" with B's own text is B.
    """
    answer = answer_part(text)
    if answer is None:
        return None
    answer = _FENCE.sub("\n", _LATEX.sub(r"\1", _LATEX.sub(r"\1", answer))).strip()
    for _ in range(2):  # JSON within a JSON string
        if answer.startswith('"') and isinstance(inner := _json(answer), str):
            answer = inner.strip()
    for label, candidate in zip(LABELS, candidates, strict=False):
        if candidate.split() and candidate.split()[0] in answer:
            own = r"\s+".join(map(re.escape, candidate.split()))
            answer = re.sub(rf"\b{label}\b[*_`)\]]*\s*[:.)\]\u2013\u2014-]+[*_`\s]*{own}(?!\w)", label, answer)
    if cut:
        return _of_object(_json(answer), num_options)
    pieces = _pieces(answer, num_options)
    return None if pieces is None else _agreed(pieces, num_options)


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a field is named twice")
    return dict(pairs)


def _pieces(text: str, num_options: int) -> list[str | int] | None:
    """Lines of text, and the labels of objects between them; None if a brace begins nothing that names a label."""
    pieces: list[str | int] = []
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    start = 0
    while (brace := text.find("{", start)) >= 0:
        try:
            value, stop = decoder.raw_decode(text, brace)
            label = _of_object(value, num_options)
        except (ValueError, RecursionError):
            loose = _LOOSE.match(text, brace)
            label, stop = (None, 0) if loose is None else (_position(loose[1], num_options), loose.end())
        if label is None or not _CLOSED.match(text, stop):
            return None
        pieces += [*_lines(text[start:brace]), label]
        start = stop
    return pieces + _lines(text[start:])


def _lines(text: str) -> list[str | int]:
    return [line.strip() for line in text.splitlines() if re.search(r"\w", line)]


def _agreed(pieces: list[str | int], num_options: int) -> int | None:
    """The one label that all objects and statements name, unless the lines around them leave doubt."""
    declared: set[int] = set()  # places of lines such as "Answer: B"
    for place, piece in enumerate(pieces):
        if isinstance(piece, str):
            label, rest, words = _stated(piece, num_options)
            if label is None or rest and not (words & _DECLARING or len(pieces) == 1 and not words & _NOUNS):
                continue
            if rest and _leaves_doubt(rest, label, num_options):
                continue
            if words:
                declared.add(place)
            pieces[place] = label
    labels = {piece for piece in pieces if isinstance(piece, int)}
    if len(labels) != 1:
        return None
    label = labels.pop()
    first = pieces.index(label)
    before = [piece for piece in pieces[:first] if isinstance(piece, str)]
    after = _sentences("\n".join(piece for piece in pieces[first:] if isinstance(piece, str)))
    if after and (sum(map(len, before)) > _LONGEST_LEAD or not _EXPLAINS.match(after[0])):
        return None
    sentences = _sentences("\n".join(before))
    if any(_prefers_another(sentence, label, num_options) for sentence in sentences):
        return None
    if sentences and first in declared:
        if any(doubt.search(sentences[-1]) for doubt in (_NEGATION, _TURN, _SHOWN)):
            return None
    elif sentences and not _announces(sentences[-1], label):
        return None
    return None if any(_doubts(sentence, label, num_options) for sentence in after) else label


def _announces(sentence: str, label: int) -> bool:
    """Whether a sentence leads to an answer, and says nothing else but perhaps its label."""
    words = {word for word in re.findall(r"[^\W_]+", sentence.replace("'s", "s"))} - {LABELS[label]}
    words = {word.lower() for word in words}
    if words and words <= _LEFTOVERS:
        return True
    shown = words & {"format", "form"} and not words & {"here", "heres", "my"}
    return bool(words <= _ANNOUNCING and words & _ANNOUNCES and not shown and "?" not in sentence)


def _stated(line: str, num_options: int) -> tuple[int | None, str, set[str]]:
    """The label that a line states, the text behind it, and the words before it: "Answer: B", "B. The alley"."""
    line = _DECORATION.sub("", line).strip()
    words: set[str] = set()
    last_end, last_word = 0, ""
    for found in re.finditer(r"[^\W\d_]+", line):
        word = found[0]
        if re.search(r"[^\s:=,.()\[\]]", line[last_end : found.start()]):
            break
        if len(word) == 1 and not _PRONOUN.match(line, found.start()):
            label, rest = _position(word, num_options), line[found.end() :]
            separated = found.start() > last_end and not line[last_end : found.start()].isspace()
            if word.islower() and last_word and last_word not in _NOUNS and not separated:  # "the answer is a ..."
                break
            if re.fullmatch(r"[\s.,!)\]]*", rest):
                return label, "", words
            behind = re.match(r"[)\]]*\s*(?:[:.)\]]|\s[-\u2013\u2014]|[\u2013\u2014])+\s+(?=\S)", rest)
            if behind is None or word.islower() and ":" not in behind[0]:
                break
            return label, rest[behind.end() :], words
        if word.lower() not in _LEAD or not words and word.lower() == "is":
            break
        words.add(word.lower())
        last_end, last_word = found.end(), word.lower()
    return None, "", words


def _position(label: str, num_options: int) -> int | None:
    if len(label) != 1 or not label.isascii():
        return None
    position = LABELS.find(label.upper())
    return position if 0 <= position < num_options else None


def _of_object(value: Any, num_options: int) -> int | None:
    """The label that an object names by its field ``preference``, or by its only field; None if others disagree."""
    if not isinstance(value, dict):
        return None
    fields = {str(name).strip().lower(): entry for name, entry in value.items()}
    if len(fields) < len(value):
        return None
    if "preference" not in fields and "name" in fields:  # a tool call
        called = fields.get("arguments", fields.get("parameters"))
        called = _json(called) if isinstance(called, str) else called
        return _of_object(called, num_options) if isinstance(called, dict) and "preference" in called else None
    only = next(iter(fields), "")
    name = only if len(fields) == 1 and only in _FIELDS else "preference"
    label = _of_value(fields.pop(name, None), num_options)
    if label is None:
        return None
    for entry in fields.values():
        if isinstance(entry, (dict, list, bool)):
            return None
        if isinstance(entry, str) and (
            _of_value(entry, num_options) not in (None, label)
            or any(_doubts(sentence, label, num_options) for sentence in _sentences(entry))
        ):
            return None
    return label


def _of_value(value: Any, num_options: int) -> int | None:
    """The label in a field: "B", "b", "B.", "Candidate B", "B: a dark alley", ["B"], or an object as text."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or "\n" in value.strip():
        return None
    if value.lstrip().startswith("{"):
        return _of_object(_json(value), num_options)
    label, rest, _ = _stated(value, num_options)
    return None if label is None or rest and _leaves_doubt(rest, label, num_options) else label


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?;])\s+|\n+", text) if part.strip()]


def _mentioned(sentence: str, num_options: int) -> set[str]:
    """Labels that a sentence mentions; an article or a pronoun may be taken for one."""
    found = {(one or other).upper() for one, other in _MENTION.findall(sentence)}
    return found if num_options > LABELS.index("I") else found - {"I"}


def _prefers_another(sentence: str, label: int, num_options: int) -> bool:
    others = _mentioned(sentence, num_options) - {LABELS[label]}
    return bool(others and _PREFERRED.search(sentence))


def _leaves_doubt(rest: str, label: int, num_options: int) -> bool:
    """Whether the text right behind a label ("B: a dark alley") mentions another, or does not look like its text."""
    if _mentioned(rest, num_options) - {LABELS[label]} or not re.match(r"\D*[^\W\d_]{3}", rest):
        return True
    return any(_doubts(sentence, label, num_options) for sentence in _sentences(rest))


def _doubts(sentence: str, label: int, num_options: int) -> bool:
    """Whether a sentence behind a label corrects, limits or denies it, or prefers another."""
    mentioned = _mentioned(sentence, num_options)
    others = mentioned - {LABELS[label]}
    about_it = LABELS[label] in mentioned or not others
    if about_it and (_NEGATION.search(sentence) or _POOR.search(sentence)):
        return True
    if not mentioned and _THE.match(sentence) and _PREFERRED.search(sentence):  # "The alley is better."
        return True
    return bool(_TURN.search(sentence)) or _prefers_another(sentence, label, num_options)
