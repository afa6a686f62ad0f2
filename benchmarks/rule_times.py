"""CPU time of a question of the adaptive planner and of every rule, on one large pool: docs/benchmarks.md.

    OMP_NUM_THREADS=1 python -m benchmarks.rule_times                # 5,000 items, d = 384, K = 4; a few minutes
    OMP_NUM_THREADS=1 python -m benchmarks.rule_times --options 2

One question is everything between an answer and the next options: the answer is told, the posterior brought up to date,
the question chosen. Each rule asks and is answered ``--questions`` times; items are clustered and of unit norm, with a
falling spectrum like that of text embeddings, the user answers by a multinomial logit of scale 20. The first question
is a column of its own: some rules solve a design for the whole pool before it. CPU seconds of one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.common import clustered_items, make_parser
from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import AdaptivePlanner, TokenFeatures
from edpbrl_gym.planners.pool.planner import RulePlanner
from edpbrl_gym.planners.registry import RULES
from edpbrl_gym.vocabulary import Vocabulary

SCALE, SEED = 20.0, 1000


def planners(items: Floats, options: int, questions: int) -> dict[str, Callable[[], AdaptivePlanner | RulePlanner]]:
    """How to make each planner, by its name in the table."""
    words = Vocabulary(("item",), (tuple(map(str, range(len(items)))),))
    features = TokenFeatures(words, items)
    ridge, prior = GaussianPrior.isotropic(items.shape[1], 1.0), VocabularyPrior(items)

    def adaptive(mode: str) -> Callable[[], AdaptivePlanner]:
        return lambda: AdaptivePlanner(words, options=features, prior=prior, num_options=options, seed=SEED, mode=mode)  # type: ignore[arg-type]

    def literature(name: str) -> Callable[[], RulePlanner]:
        return lambda: RulePlanner(
            words, rule=name, options=features, prior=ridge, num_options=options, seed=SEED, episodes=questions
        )

    return {"adaptive": adaptive("learn"), "adaptive, best": adaptive("best")} | {
        name: literature(name) for name in RULES
    }


def ask_and_answer(planner: AdaptivePlanner | RulePlanner, items: Floats, questions: int) -> Floats:
    """CPU seconds of each question, (n,)."""
    rng = np.random.default_rng([SEED, 1])
    taste = rng.normal(size=items.shape[1])
    taste *= SCALE / float(np.linalg.norm(taste))
    seconds = np.empty(questions)
    begun = time.process_time()
    for number in range(questions):
        shown = items[planner.ask(np.empty((planner.num_options, 0), dtype=np.int64))]
        seconds[number] = time.process_time() - begun
        choice = int((shown @ taste + rng.gumbel(size=len(shown))).argmax())
        begun = time.process_time()
        planner.tell(shown[None], [Response.best(choice)])
    return seconds


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--options", type=int, default=4, help="K")
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--rule", nargs="*", help="only these")
    given = parser.parse_args()
    items = clustered_items(given.items, given.dimension)
    print(f"{given.items} items, d = {given.dimension}, K = {given.options}, {given.questions} questions; CPU seconds")
    print(f"{'rule':<18}{'first':>8}{'median':>8}{'90%':>8}{'worst':>8}")
    with one_blas_thread():
        for name, make in planners(items, given.options, given.questions).items():
            if given.rule and name not in given.rule:
                continue
            seconds = ask_and_answer(make(), items, given.questions)
            rest = seconds[1:]
            numbers = (seconds[0], np.median(rest), np.quantile(rest, 0.9), rest.max())
            print(f"{name:<18}" + "".join(f"{number:8.3f}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
