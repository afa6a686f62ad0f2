"""What twenty answers about posters teach, by the prompt's features, the picture's, or both: a table.

    OMP_NUM_THREADS=1 python -m benchmarks.picture_answers            # about 20 minutes on one core
    OMP_NUM_THREADS=1 python -m benchmarks.picture_answers --tastes symmetric fine --seeds 4

A simulated person has a taste in pictures that is a function of their pixels (``benchmarks.picture_tastes``), which the
library does not see. They see four posters of a pool in each question and choose the best by it: with Gumbel noise, a
lead of one standard deviation of the taste over all posters counts like a lead of 3 in a logit. The learnt taste orders
the pairs of other posters, and picks the best of four random ones of these: half of the pairs, and a quarter of the
picks, are right by guessing. Standard errors are over the seeds, each with another noise and other questions.

Calm and warm are sums of mean colours, edges and contrast: "colours", which was added after they had been measured,
measures the first almost as they do, EfficientNet, which was trained to know objects in whatever colours, hardly.
Symmetric and fine are about neither, and were measured once. ``--features text --text minilm+phrases`` measures effects
of phrases beside the prompts' embeddings. Deco to night are tastes of people who like what a sentence says, as MiniLM
sees it in the prompts, whatever their pictures look like.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser, show
from benchmarks.kit.sentences import POSTERS
from benchmarks.picture_tastes import FRESH, TASTES
from edpbrl_gym._arrays import Floats
from edpbrl_gym.features import MemoEncoder, TextEncoder, load_encoder
from edpbrl_gym.features.images import PICTURE_FEATURES
from edpbrl_gym.features.loading import default_cache_folder
from edpbrl_gym.likelihood import Response
from edpbrl_gym.pictures import drawn_by, features_of, prompt_pool
from edpbrl_gym.pictures.drawn import Features
from edpbrl_gym.planners import make_planner
from edpbrl_gym.rendering import load_renderer
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

OPTIONS, STEEPNESS, PICKS = 4, 3.0, 1000
KINDS: tuple[tuple[Features, str], ...] = (
    ("text", "colours"),
    *((kind, spec) for kind in ("picture", "both") for spec in ("efficientnet-lite0", "colours", PICTURE_FEATURES)),
)


def learn(
    planner_name: str, pool: Vocabulary, encoder: TextEncoder, utilities: Mapping[str, float], answers: int, seed: int
) -> tuple[TextEncoder, Floats]:
    """The encoder and the estimate of the taste after so many answers."""
    rng = np.random.default_rng([seed, 7])
    planner = make_planner(planner_name, pool, encoder, feedback="state", num_options=OPTIONS, seed=seed)
    for _ in range(answers):
        chosen = planner.ask(np.zeros((OPTIONS, 0), dtype=np.int64))
        texts = [pool.tokens[0][item] for item in chosen]
        values = np.array([utilities[text] for text in texts]) + rng.gumbel(size=OPTIONS)
        planner.tell(encoder.encode(texts)[None], [Response.best(int(values.argmax()))])
    return planner.prior.encoder(encoder), planner.estimate.theta


def hits(scores: Floats, utilities: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Share of pairs ordered rightly, and of the best of four picked."""
    one, other = np.triu_indices(len(scores), 1)
    right = np.sign(scores[one] - scores[other]) == np.sign(utilities[one] - utilities[other])
    picks = rng.permuted(np.tile(np.arange(len(scores)), (PICKS, 1)), axis=1)[:, :4]
    return float(right.mean()), float((scores[picks].argmax(axis=1) == utilities[picks].argmax(axis=1)).mean())


def main() -> None:
    """Run the benchmark and print its table."""
    parser = make_parser(__doc__)
    for name, value in (("seeds", 8), ("pool", 250), ("held-out", 150), ("answers", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tastes", nargs="+", choices=[*TASTES, *FRESH, *POSTERS], default=[*TASTES, *FRESH])
    parser.add_argument(
        "--features", nargs="+", choices=("text", "picture", "both"), default=["text", "picture", "both"]
    )
    parser.add_argument("--text", default="minilm", help="encoder of the prompts")
    parser.add_argument("--cache", type=Path, default=default_cache_folder(), help="folder of posters and features")
    options = parser.parse_args()
    items = prompt_pool(load_vocabulary("posters"), options.pool + options.held_out, seed=0).tokens[0]
    pool, held_out = Vocabulary(("prompt",), (items[: options.pool],)), items[options.pool :]
    renderer = load_renderer("posters", cache_folder=options.cache / "pictures")
    pictures = {spec: drawn_by(renderer, spec, cache_folder=options.cache) for _, spec in KINDS}
    text = load_encoder(options.text, cache_folder=options.cache)
    pictures[PICTURE_FEATURES].encode(items, progress=True)
    rows = []
    for taste in options.tastes:
        if taste in POSTERS:
            minilm = load_encoder("minilm", cache_folder=options.cache)
            raw = minilm.encode(items).astype(np.float64) @ minilm.encode([POSTERS[taste]])[0]
        else:
            raw = np.array([(TASTES | FRESH)[taste](one.path.read_bytes()) for one in renderer.render(items)])
        utilities = STEEPNESS * (raw - raw.mean()) / raw.std()
        known = dict(zip(items, utilities, strict=True))
        for kind, spec in (one for one in KINDS if one[0] in options.features):
            encoder = MemoEncoder(features_of(kind, text, pictures[spec]))
            name = kind if kind == "text" else f"{kind}: {spec}"
            for planner in ("random", "adaptive"):
                found = []
                for seed in range(options.seeds):
                    mapped, theta = learn(planner, pool, encoder, known, options.answers, seed)
                    scores = mapped.encode(held_out).astype(np.float64) @ theta
                    found.append(hits(scores, utilities[options.pool :], np.random.default_rng([seed, 8])))
                mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(options.seeds)
                cells = [f"{one:.3f} +- {other:.3f}" for one, other in zip(mean, error, strict=True)]
                rows.append([taste, name, planner, *cells])
                print(*rows[-1], flush=True)
    title = f"{options.answers} answers, {options.pool} posters, {options.seeds} seeds"
    show(TextTable(title, ["taste", "features", "questions", "pairs", "best of four"], rows, words=3))


if __name__ == "__main__":
    main()
