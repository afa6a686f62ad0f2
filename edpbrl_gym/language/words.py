"""Words of generated text: tokens that begin a word, the end of a budget of words, and truncated prefixes.

A word is a maximal run of characters other than ASCII white space (space, tab, line feed, vertical tab, form feed,
carriage return). A no-break space and other Unicode spaces are part of a word: their UTF-8 bytes may be spread over
several tokens, while an ASCII byte is always a character of its own, so the rule is exact for byte-level tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Booleans, Indices
from edpbrl_gym._validation import check_count

__all__ = ["WHITESPACE", "WordRules", "word_prefixes"]

WHITESPACE = " \t\n\v\f\r"
_WORD = re.compile(f"[^{WHITESPACE}]+")
_WORD_BYTES = re.compile(f"[^{WHITESPACE}]+".encode())


def word_prefixes(text: str, words: int) -> list[str]:
    """Return the H truncated prompts w_1, w_1 w_2, ..., w_1 ... w_H of a text, cut at word boundaries.

    Inner white space is kept, surrounding white space removed. A text of fewer than H words repeats its last
    prefix, so that every position h has an embedding (the paper's Appendix C compares K prompts position by
    position); a text without a word gives H times "".
    """
    count = check_count(words, "words")
    spans = [match.span() for match in _WORD.finditer(text)][:count]
    prefixes = [text[spans[0][0] : end] for _, end in spans]
    return prefixes + [prefixes[-1] if prefixes else ""] * (count - len(prefixes))


class WordRules:
    """The effect of each token of a tokenizer on the words of a text, as arrays over the vocabulary (V,).

    The state of a text is (num_words, inside): the number of words that have begun, and whether the last character
    belongs to a word (so that the next token may continue it).

    Attributes:
        eos: Id of the token that ends a text.
        pieces: Bytes of each token, b"" for the tokens that are never generated as text.
        allowed: Tokens that may be generated as text: neither special nor empty.
        begins: Words that a token begins where the text is outside a word.
        continues: Whether the first byte continues a word if the text is inside one (then one word fewer begins).
        inside_after: Whether the token's last byte belongs to a word.
        max_begins: The largest entry of ``begins``.
    """

    def __init__(self, pieces: Sequence[bytes], *, eos: int, special: Iterable[int] = ()) -> None:
        if not 0 <= eos < len(pieces):
            raise ValueError(f"Expected eos as a token id in 0..{len(pieces) - 1}, got {eos}.")
        hidden = {eos, *special}
        self.eos = int(eos)
        self.pieces = tuple(b"" if token in hidden else bytes(piece) for token, piece in enumerate(pieces))
        self.allowed: Booleans = np.array([bool(piece) for piece in self.pieces])
        self.begins: Indices = np.array([len(_WORD_BYTES.findall(piece)) for piece in self.pieces], dtype=np.int64)
        spaces = WHITESPACE.encode()
        self.continues: Booleans = np.array([bool(piece) and piece[0] not in spaces for piece in self.pieces])
        self.inside_after: Booleans = np.array([bool(piece) and piece[-1] not in spaces for piece in self.pieces])
        self.max_begins = int(self.begins.max(initial=0))
        self._masks: dict[tuple[int, bool], Booleans] = {}

    @classmethod
    def of_tokenizer(cls, tokenizer: Any) -> WordRules:
        """Derive the rules from a byte-level BPE tokenizer (GPT-2, OPT, Llama 3, Qwen and the like).

        Raises:
            ValueError: If the tokenizer isn't byte-level, so that the bytes of a token aren't known from the token
                alone, or it has no end-of-sequence token.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        decoder = None if backend is None else json.loads(backend.to_str()).get("decoder")
        if not _is_byte_level(decoder):
            kind = "no decoder" if decoder is None else f"the decoder {decoder.get('type')!r}"
            raise ValueError(
                f"Expected a byte-level BPE tokenizer (as GPT-2, OPT, Llama 3 or Qwen have), got "
                f"{type(tokenizer).__name__} with {kind}; word boundaries of other tokenizers can't be read off single "
                "tokens. Use a model with a byte-level tokenizer."
            )
        if tokenizer.eos_token_id is None:
            raise ValueError("Expected a tokenizer with an end-of-sequence token, got none; set tokenizer.eos_token.")
        vocabulary = tokenizer.get_vocab()
        size = max(vocabulary.values()) + 1
        token_bytes = [b""] * size
        for token, index in vocabulary.items():
            token_bytes[index] = _piece(token)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        special = {index for index, token in added.items() if token.special} | set(tokenizer.all_special_ids)
        return cls(token_bytes, eos=int(tokenizer.eos_token_id), special=special)

    @property
    def size(self) -> int:
        """V, the number of token ids."""
        return len(self.pieces)

    @property
    def always_legal(self) -> Indices:
        """Ids legal under every budget of at least one word: EOS, white space, and tokens that only continue a word."""
        within = self.allowed & (self.begins <= self.continues)
        within[self.eos] = True
        return np.flatnonzero(within)

    def started(self, token: ArrayLike, inside: ArrayLike) -> Indices:
        """Words that ``token`` begins where the text is ``inside`` a word or not; arrays of one shape."""
        tokens = np.asarray(token, dtype=np.int64)
        return self.begins[tokens] - (np.asarray(inside, dtype=np.bool_) & self.continues[tokens])

    def advance(self, num_words: ArrayLike, inside: ArrayLike, token: ArrayLike) -> tuple[Indices, Booleans]:
        """State (num_words, inside) after appending ``token``; arrays of one shape."""
        tokens = np.asarray(token, dtype=np.int64)
        return np.asarray(num_words, dtype=np.int64) + self.started(tokens, inside), self.inside_after[tokens]

    def complete(self, num_words: ArrayLike, inside: ArrayLike, words: int) -> Booleans:
        """Whether all H = ``words`` words are complete: the last has begun and the text is outside of it."""
        return (np.asarray(num_words) >= words) & ~np.asarray(inside, dtype=np.bool_)

    def stop_mask(self, num_words: int, inside: bool, words: int) -> Booleans:
        """Tokens that end the text in this state, (V,): EOS and every token that would begin word H + 1."""
        return self._mask(int(words) - int(num_words), bool(inside))

    def legal_mask(self, num_words: int, inside: bool, words: int) -> Booleans:
        """Legal actions in this state, (V,): text tokens within the budget, and EOS."""
        legal = self.allowed & ~self._mask(int(words) - int(num_words), bool(inside))
        legal[self.eos] = True
        return legal

    def _mask(self, remaining: int, inside: bool) -> Booleans:
        key = (min(remaining, self.max_begins), inside)  # nothing is beyond a budget of `max_begins` words
        if key not in self._masks:
            started = self.begins - (self.continues if inside else 0)
            mask = self.allowed & (started > remaining)
            mask[self.eos] = True
            mask.setflags(write=False)
            self._masks[key] = mask
        return self._masks[key]

    def data(self, tokens: Iterable[int]) -> bytes:
        """Bytes of a token sequence; EOS and other special tokens have none."""
        return b"".join(self.pieces[token] for token in tokens)

    def text(self, tokens: Iterable[int]) -> str:
        """Text of a token sequence without surrounding white space; broken UTF-8 is U+FFFD, as in the tokenizer."""
        return self.data(tokens).decode("utf-8", "replace").strip(WHITESPACE)

    def state(self, tokens: Iterable[int]) -> tuple[int, bool]:
        """State (num_words, inside) of a token sequence from the empty text."""
        data = self.data(tokens)
        return len(_WORD_BYTES.findall(data)), bool(data) and data[-1] not in WHITESPACE.encode()


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    if decoder is None:
        return False
    if decoder.get("type") == "Sequence":
        return [part.get("type") for part in decoder.get("decoders", [])] == ["ByteLevel"]
    return decoder.get("type") == "ByteLevel"


def _byte_characters() -> dict[str, int]:
    """The characters by which byte-level BPE writes bytes: itself where printable, else the next from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(rest)}


_BYTES = _byte_characters()


def _piece(token: str) -> bytes:
    """Bytes that the byte-level decoder makes of a token; a token with other characters (an added one) is literal."""
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:
        return token.encode()
