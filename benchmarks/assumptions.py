"""Which assumptions of the paper's bound hold in its own synthetic setting: the table of docs/method.md.

    OMP_NUM_THREADS=1 python -m benchmarks.assumptions      # about four minutes on one core

Random and ED-PBRL (Frank-Wolfe, criterion V, lambda = 100, 100 iterations, one design for T = 110) ask K = 4 options at
each of H = 6 steps; MiniLM embeds the partial prompts of the train vocabulary. The paper's three users have the
unit-norm embedding of a sentence as theta* and sample their answers from the softmax, at inverse temperature 1 and 20
(the truth is then scale * theta*). theta is estimated at lambda = 100, 1 and 0.1 and diagnosed with the known truth.

Prints means over users and runs: the effective number of parameters k, the local radius r and the share of estimates
with r < 1, the prior distance lambda |theta*|^2, the utility error delta, and the two constants of the bound that holds
(for the matrix and for the total).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from benchmarks.common import make_parser, show, training_tokens
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import answer_again, collect
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import Diagnosis, estimate
from edpbrl_gym.experiments.designs import make_lanes, train_tokens
from edpbrl_gym.experiments.settings import PAPER_USERS, SyntheticSettings
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.reporting.tables import TextTable

AGENTS = ("random", "frank_wolfe")
LAMBDAS = (100.0, 1.0, 0.1)
SEED = 0


def questions(settings: SyntheticSettings, runs: int) -> Iterator[tuple[str, int, Comparisons]]:
    """The questions of each agent and run, answered by nobody in particular."""
    vocabulary, encoder, _ = training_tokens()
    tokens = train_tokens(vocabulary, encoder)
    episodes = max(settings.episodes)
    for name in AGENTS:
        env = make_lanes(settings, tokens, episodes * settings.num_options)
        options = {"max_iterations": settings.iterations} if name == "frank_wolfe" else {}
        agent = make_agent(
            name,
            env,
            num_options=settings.num_options,
            episodes=episodes,
            regularization=settings.regularization,
            criterion=settings.criterion,
            seed=SEED,
            **options,
        ).learn()
        anybody = SyntheticUser(np.ones(encoder.dimension))
        for run in range(runs):
            seed = derive_seed(SEED, "assumptions", name, run) % 2**31
            yield name, run, collect(env, agent, anybody, episodes=episodes, seed=seed)
        env.close()


def diagnoses(settings: SyntheticSettings, runs: int) -> dict[tuple[float, str, float, int], list[Diagnosis]]:
    """Diagnoses by scale, agent, lambda and T."""
    _, encoder, _ = training_tokens()
    found = defaultdict(list)
    for agent, run, asked in questions(settings, runs):
        for name, sentence in PAPER_USERS.items():
            for scale in settings.scales:
                seed = derive_seed(SEED, "answers", name, scale, run)
                user = SyntheticUser.from_text(sentence, encoder, mode="sampled", scale=scale, seed=seed)
                answered = answer_again(asked, user)
                for episodes in settings.episodes:
                    first = answered.select(answered.episode < episodes)
                    for ridge in LAMBDAS:
                        fit = estimate(first, regularization=ridge)
                        found[scale, agent, ridge, episodes].append(fit.diagnose(truth=scale * user.theta))
    return found


def table(found: dict[tuple[float, str, float, int], list[Diagnosis]], scale: float, of: int) -> TextTable:
    """The means of one scale."""
    rows = []
    for (this, agent, ridge, episodes), cases in sorted(
        found.items(), key=lambda item: (AGENTS.index(item[0][1]), -item[0][2], item[0][3])
    ):
        if this != scale:
            continue
        mean = {
            key: float(np.mean([getattr(case, key) for case in cases]))
            for key in ("effective_parameters", "radius", "radius_holds", "prior_distance", "utility_error")
        }
        matrix, total = (
            float(np.mean([getattr(case, key) for case in cases])) for key in ("matrix_constant", "total_constant")
        )
        rows.append(
            [
                agent,
                f"{ridge:g}",
                str(episodes),
                f"{mean['effective_parameters']:.1f}",
                f"{mean['radius']:.2f}",
                f"{mean['radius_holds']:.0%}",
                f"{mean['prior_distance']:.4g}",
                "yes" if all(case.prior_holds for case in cases) else "no",
                f"{mean['utility_error']:.2f}",
                f"{total:.3g}",
                f"{matrix:.3g}",
            ]
        )
    header = ["agent", "lambda", "T", "k", "r", "r < 1", "prior distance", "<= 1", "delta", "total", "matrix"]
    return TextTable(f"Scale {scale:g}, means of {of} estimates", header, rows, words=1)


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs for each agent (default: 3)")
    parser.add_argument("--episodes", type=int, nargs="+", default=[10, 30, 50, 70, 90, 110], help="T of the estimates")
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 20.0], help="inverse temperatures")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    arguments = parser.parse_args()
    settings = SyntheticSettings(episodes=tuple(arguments.episodes), scales=tuple(arguments.scales))
    found = diagnoses(settings, arguments.runs)
    for scale in settings.scales:
        result = table(found, scale, arguments.runs * len(PAPER_USERS))
        if arguments.markdown:
            print("\n".join(result.markdown()), end="\n\n")
        else:
            show(result)


if __name__ == "__main__":
    main()
