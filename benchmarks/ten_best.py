"""The prompts that twenty answers lead to, beside those that the taste itself likes best: docs/ten-best.md.

    OMP_NUM_THREADS=1 python -m benchmarks.ten_best            # about a minute
    OMP_NUM_THREADS=1 python -m benchmarks.ten_best --page docs/ten-best.md

Five simulated users, each of whom likes a sentence, see nine complete prompts in each of twenty adaptive questions and
tap the one they like best, at scale 20, which now and then is not their best. The questions' words come from half of a
built-in vocabulary, split by head word. The ten prompts are written from the other half, which no question showed, by
``Session.recommend`` for the learnt taste, and by a wider search for the user's own. Their gain is that over a random
prompt, as a share of the gain of the best prompt found: 0% is as good as random, 100% as good as can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser
from benchmarks.kit.sentences import FRESH
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.search import best_prompts, random_prompts
from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import Session, run
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

OPTIONS, ANSWERS, SCALE, RANDOM, COUNT = 9, 20, 20.0, 1000, 10
USERS = (
    ("images", "jungle"),
    ("images", "trains"),
    ("images", "cats"),
    ("interiors", "loft"),
    ("interiors", "nursery"),
)


@dataclass(frozen=True)
class Found:
    """What a user taught: pairs (prompt, gain), in the order of the search."""

    words: str
    sentence: str
    mistakes: int
    learnt: list[tuple[str, float]]
    true: list[tuple[str, float]]


def ask(words: str, user: str, encoder: TextEncoder, seed: int) -> Found:
    """Ask a user, and write ten prompts for what was learnt and ten for what is true."""
    sentence = FRESH[words][user]
    shown, unseen = load_vocabulary(words).split(0, 0.5, by="head")
    memo = MemoEncoder(encoder)
    oracle = SyntheticUser.from_text(sentence, memo, mode="sampled", scale=SCALE, seed=seed)
    planner = make_planner("adaptive", shown, memo, num_options=OPTIONS, seed=seed, feedback="prompt")
    session = Session(planner, vocabulary=shown, encoder=memo, num_options=OPTIONS, feedback="prompt", held_out=unseen)
    run(session, oracle, ANSWERS)
    answered = session.comparisons
    taste = oracle.theta / np.linalg.norm(oracle.theta)
    mistakes = int(np.sum((answered.features @ taste).argmax(axis=1) != answered.choice))
    learnt = [one.text for one in session.recommend(COUNT, vocabulary=unseen)]
    true = [one.text for one in best_prompts(unseen, memo, taste, count=COUNT, width=24, shortlist=16)]
    random = random_prompts(unseen, RANDOM, np.random.default_rng(seed))
    mean = float((encoder.encode(random).astype(np.float64) @ taste).mean())
    learnt_scores, true_scores = (memo.encode(texts).astype(np.float64) @ taste for texts in (learnt, true))
    best = float(max(learnt_scores.max(), true_scores.max()))
    learnt_gains, true_gains = (((scores - mean) / (best - mean)).tolist() for scores in (learnt_scores, true_scores))
    return Found(
        words, sentence, mistakes,
        list(zip(learnt, learnt_gains, strict=True)),
        list(zip(true, true_gains, strict=True)),
    )  # fmt: skip


def page(found: list[Found], encoder: str) -> str:
    """The page in Markdown."""
    halves = {one.words: load_vocabulary(one.words).split(0, 0.5, by="head")[1] for one in found}
    sizes = "; ".join(f"{words}: {_sizes(vocabulary)}" for words, vocabulary in halves.items())
    gains = [gain for one in found for _, gain in one.learnt]
    lines = [
        "# What twenty answers lead to",
        "",
        "Five simulated users, each of whom likes a sentence, answered twenty adaptive questions: nine complete",
        f"prompts, one tap on the best, at scale {SCALE:g}. Left: the ten prompts that `Session.recommend` writes for",
        "the learnt taste, from words that no question showed. Right: the ten that a wider search finds for the true",
        f"taste. Gain: how much more than the mean of {RANDOM:,} random prompts the user likes it, as a share of the",
        "gain of the best prompt found.",
        "",
        f"The {len(gains)} learnt prompts have {np.mean(gains):.0%} of the possible gain on average, between"
        f" {min(gains):.0%} and {max(gains):.0%}.",
        "",
        f"Words of each step from which they are written (half of each vocabulary, split by head word): {sizes}.",
        "",
        "    OMP_NUM_THREADS=1 python -m benchmarks.ten_best --page docs/ten-best.md",
    ]
    for one in found:
        lines += [
            "",
            f'## "{one.sentence}"',
            "",
            f"Vocabulary: {one.words}. {one.mistakes} of {ANSWERS} answers named a prompt that is not the user's best.",
            "",
            "| | learnt from twenty answers | gain | for the true taste | gain |",
            "|---:|---|---:|---|---:|",
        ]
        for rank, ((learnt, gain), (true, most)) in enumerate(zip(one.learnt, one.true, strict=True), start=1):
            lines.append(f"| {rank} | {learnt} | {gain:.0%} | {true} | {most:.0%} |")
    lines += [
        "",
        f"Embeddings: {encoder}. A user likes a prompt as much as its embedding resembles that of the sentence.",
    ]
    return "\n".join(lines) + "\n"


def _sizes(vocabulary: Vocabulary) -> str:
    return ", ".join(f"{name} {size}" for name, size in zip(vocabulary.names, vocabulary.sizes, strict=True))


def main() -> None:
    """Ask all users, then print the page or write it."""
    parser = make_parser(__doc__)
    parser.add_argument("--page", type=Path, help="write this file instead of printing")
    parser.add_argument("--seed", type=int, default=0, help="of the users and the planner (default: 0)")
    arguments = parser.parse_args()
    encoder = load_encoder("minilm")
    text = page([ask(words, user, encoder, arguments.seed) for words, user in USERS], encoder.name)
    if arguments.page is None:
        print(text)
    else:
        arguments.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
