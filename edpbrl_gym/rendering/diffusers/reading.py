"""What a pipeline reads of its texts, watched while it encodes them.

Each pipeline cuts texts in a way of its own: limits of tokenizers, of `max_sequence_length`, templates around the
prompt, several text encoders with limits of their own, and no negative prompt is read where there is no
classifier-free guidance. So none of this is declared here; the calls of the tokenizers say it.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from edpbrl_gym._compat import require

__all__ = ["TextWatch"]

_CUTTING = (True, "longest_first", "only_first")  # values of a tokenizer's argument truncation
# components that work on texts or finished images; all others are run when the texts have been read
_BEFORE_AND_AFTER = ("text_encoder", "image_encoder", "safety", "vae", "vqgan", "movq")


class TextWatch:
    """Watches what the tokenizers of a pipeline keep of some texts; a context manager around the pipeline's call.

    Args:
        pipeline: A diffusers pipeline.
        prompts: The prompts of the call.
        negative: Its negative prompt, "" without one.
        unread: Called before the first step of denoising if the pipeline has read the prompts but not the negative
            prompt; raises the error that says so.
    """

    def __init__(
        self,
        pipeline: Any,
        prompts: Sequence[str],
        negative: str = "",
        unread: Callable[[], None] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._prompts = Counter(map(_plain, prompts))
        self._negative = _plain(negative)
        self._unread = unread
        self._ends: dict[str, dict[str, bool]] = {}  # of each text: whether a tokenizer keeps it to the end
        self._counts: Counter[tuple[str, str]] = Counter()  # of (tokenizer, text)
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        for name, tokenizer in _tokenizers(self._pipeline):
            self._undo.append(_watched(tokenizer, lambda *call, name=name: self._note(name, *call)))
        if self._negative and self._unread is not None:
            for module in _denoisers(self._pipeline):
                self._undo.append(module.register_forward_pre_hook(lambda *_: self._check_negative()).remove)
        return self

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def is_cut(self, prompt: str) -> bool:
        """Whether no tokenizer keeps a prompt to its end, so that the end has no effect on the image."""
        ends = self._ends.get(_plain(prompt), {})
        return bool(ends) and not any(ends.values())

    @property
    def negative_is_cut(self) -> bool:
        """Whether no tokenizer keeps the negative prompt to its end."""
        return self.is_cut(self._negative)

    def partial(self, prompts: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The tokenizers that cut a prompt and those that keep it to its end, for prompts with some of each.

        Returns:
            Under the names of those that cut, joined by ", ", the names of those that don't.
        """
        found = {}
        for ends in (self._ends.get(_plain(prompt), {}) for prompt in prompts):
            if any(ends.values()) and not all(ends.values()):
                cutting = ", ".join(sorted(name for name, whole in ends.items() if not whole))
                found[cutting] = tuple(sorted(name for name, whole in ends.items() if whole))
        return found

    def _check_negative(self) -> None:
        """Call ``unread`` if the negative prompt has not been read although something has."""
        own = self._prompts[self._negative]
        read = any(text == self._negative and count > own for (_, text), count in self._counts.items())
        # a pipeline without tokenizers of transformers can't be watched
        if not read and self._counts and self._unread is not None:
            self._unread()

    def _note(self, name: str, tokenizer: Any, call: Callable[..., Any], text: Any, options: dict[str, Any]) -> None:
        """Note what a tokenizer keeps of the texts of one call; calls that don't cut are for messages only."""
        if options.get("truncation") not in _CUTTING:
            return
        for one in [text] if isinstance(text, str) else text or ():
            if not isinstance(one, str):
                continue
            # a pipeline may change a text or put it into a template: it belongs to the longest that is in it
            owners = [known for known in {*self._prompts, self._negative} if known and known in _plain(one)]
            if owners:
                owner = max(owners, key=len)
                whole = self._is_kept(tokenizer, call, one, owner, options)
                ends = self._ends.setdefault(owner, {})
                ends[name] = ends.get(name, True) and whole
                self._counts[name, owner] += 1

    def _is_kept(
        self, tokenizer: Any, call: Callable[..., Any], text: str, owner: str, options: dict[str, Any]
    ) -> bool:
        """Whether the tokens that are kept of a text cover the prompt in it, from its begin to its end."""
        settings: dict[str, Any] = {
            name: options[name] for name in ("max_length", "add_special_tokens") if name in options
        }
        if not tokenizer.is_fast:
            limit = options.get("max_length") or tokenizer.model_max_length
            uncut: dict[str, Any] = {**settings, "max_length": None, "truncation": False, "verbose": False}
            whole = call(tokenizer, text, **uncut)
            return len(whole["input_ids"]) <= limit
        kept = call(tokenizer, text, **settings, truncation=True, return_offsets_mapping=True, verbose=False)
        offsets = [(begin, end) for begin, end in kept["offset_mapping"][: self._limit()] if end > begin]
        first, last = min((begin for begin, _ in offsets), default=0), max((end for _, end in offsets), default=0)
        begin, end = _place(text, owner)
        return not (text[begin:first].strip() or text[max(last, begin) : end].strip())

    def _limit(self) -> int | None:
        """The tokens of a template and `max_sequence_length` after it, where a pipeline cuts encodings (Qwen-Image)."""
        start = getattr(self._pipeline, "prompt_template_encode_start_idx", None)
        length = inspect.signature(type(self._pipeline).__call__).parameters.get("max_sequence_length")
        if isinstance(start, int) and length is not None and isinstance(length.default, int):
            return start + length.default
        return None


def _plain(text: str) -> str:
    """A text in the form in which it is found in what a pipeline made of it."""
    return " ".join(text.lower().split())


def _place(text: str, owner: str) -> tuple[int, int]:
    """Begin and end of the last place in ``text`` that has the words of ``owner``, a result of ``_plain``."""
    pattern = r"\s+".join(map(re.escape, owner.split(" ")))
    places = list(re.finditer(pattern, text, re.IGNORECASE))
    return places[-1].span() if places else (0, len(text))


def _components(pipeline: Any) -> dict[str, Any]:
    return dict(getattr(pipeline, "components", {}))


def _tokenizers(pipeline: Any) -> Iterator[tuple[str, Any]]:
    """The tokenizers of a pipeline by their names; those of processors too, each once."""
    base = require("transformers", "rendering").PreTrainedTokenizerBase
    seen: set[int] = set()
    for name, component in _components(pipeline).items():
        for tokenizer in (component, getattr(component, "tokenizer", None)):
            if isinstance(tokenizer, base) and id(tokenizer) not in seen:
                seen.add(id(tokenizer))
                yield name, tokenizer


def _denoisers(pipeline: Any) -> Iterator[Any]:
    import torch

    for name, component in _components(pipeline).items():
        if isinstance(component, torch.nn.Module) and not any(part in name for part in _BEFORE_AND_AFTER):
            yield component


def _watched(tokenizer: Any, note: Callable[..., None]) -> Callable[[], object]:
    """Have ``note`` called with every call of a tokenizer; returns what ends this.

    Python looks ``__call__`` up in the class, so the tokenizer gets a subclass of its own for this time.
    """
    cls = type(tokenizer)

    def watched_call(self: Any, text: Any = None, *more: Any, **options: Any) -> Any:
        note(self, cls.__call__, text, options)
        return cls.__call__(self, text, *more, **options)

    tokenizer.__class__ = type(cls.__name__, (cls,), {"__call__": watched_call, "__module__": cls.__module__})

    def end() -> None:
        tokenizer.__class__ = cls

    return end
