"""Frank-Wolfe with a deep RL oracle against the exact optimum of the same design problem.

    python -m benchmarks.deep_oracle                     # seeds 0, 1, 2; criteria D and V; d = 16 and 384: half an hour
    python -m benchmarks.deep_oracle --seeds 100 --dimensions 16 --iterations 3          # a run of development

The environment is PromptConstruction with 67 tokens for each of 6 steps (402 in all), K = 4, T = 60, lambda = 1 and
feedback on the last token. A seed draws the tokens. It has a table, which "newton" solves; the deep agent does not read
it but plays lanes and sees the features they show. Features are MiniLM's embeddings (d = 384), for which the uniform
policy is nearly optimal, and their first 16 principal components, divided by the norm, for which it is not.

The mixture is judged by the tokens of 20,000 fresh episodes, whose shares are the occupancy of the table, not by the
moments that it was trained on. The loss is |value - optimum| / |optimum|; the gain is over no data. Settings were
chosen on seeds 100 and 101.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import edpbrl_gym  # noqa: F401  (registers the environments)
from benchmarks.common import make_parser, show
from edpbrl_gym.agents.deep import DeepDesignAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import Design, newton
from edpbrl_gym.features import save_precomputed
from edpbrl_gym.reporting.tables import TextTable

K, T, LAMBDA = 4, 60, 1.0
TOKENS_PER_STEP, WHOLE = 67, 384
JUDGED = 20_000  # episodes


def environment_arguments(seed: int, dimension: int, folder: Path) -> dict[str, Any]:
    """Arguments of the environment; fewer dimensions are principal components, in a file of the folder."""
    arguments: dict[str, Any] = {"tokens_per_step": TOKENS_PER_STEP, "subset_seed": seed}
    if dimension == WHOLE:
        return arguments
    base: Any = gymnasium.make("edpbrl/PromptConstruction-v0", **arguments).unwrapped
    rows = np.asarray(base.features, dtype=np.float64)
    components = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:dimension]
    path = folder / f"components-{seed}-{dimension}.npz"
    save_precomputed(path, base.vocabulary.all_tokens, rows @ components.T)
    return {**arguments, "encoder": f"precomputed:{path}"}


def played_value(agent: DeepDesignAgent, design: Design, arguments: dict[str, Any]) -> float:
    """The table's objective of what the agent plays in fresh episodes."""
    problem = design.problem
    lanes = gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=JUDGED, **arguments)
    observations, _ = lanes.reset()
    state = None
    for _ in range(problem.horizon):
        actions, state = agent.predict(observations, state)
        observations, *_ = lanes.step(actions)
    lanes.close()
    offsets, rows = agent.base.mdp.offsets, problem.mdp.num_rows
    tokens = np.asarray(observations)
    counts = [np.bincount(offsets[step] + tokens[:, step], minlength=rows) for step in range(problem.horizon)]
    return problem.objective(np.array(counts) / JUDGED)


def measure(criterion: str, seed: int, dimension: int, iterations: int, timesteps: int, folder: Path) -> list[str]:
    """One row of the table."""
    arguments = environment_arguments(seed, dimension, folder)
    env = gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=K, **arguments)
    common: dict[str, Any] = {
        "num_options": K,
        "episodes": T,
        "regularization": LAMBDA,
        "criterion": criterion,
        "seed": seed,
    }
    design = newton(make_agent("newton", env, **common).problem())  # type: ignore[attr-defined]
    problem, mdp = design.problem, design.problem.mdp
    uniform = problem.objective(mdp.row_occupancy(mdp.occupancy(mdp.uniform_policy())))
    agent = DeepDesignAgent(env, feedback="state", iterations=iterations, timesteps=timesteps, rollouts=4096, **common)
    began = time.perf_counter()
    agent.learn()
    seconds = time.perf_counter() - began
    deep = played_value(agent, design, arguments)

    def loss(value: float) -> str:
        return f"{abs(value - design.value) / abs(design.value):.2%}"

    def share(value: float) -> str:
        return f"{(value - problem.baseline) / design.gain:.2%}"

    def efficiency(value: float) -> str:
        return f"{problem.criterion.efficiency(value, design.upper_bound, problem.dimension):.1%}"

    return [
        criterion,
        str(dimension),
        str(seed),
        f"{design.value:.2f}",
        f"{uniform:.2f}",
        f"{deep:.2f}",
        f"{loss(uniform)}, {loss(deep)}",
        f"{share(uniform)}, {share(deep)}",
        f"{efficiency(uniform)}, {efficiency(deep)}",
        f"{sum(record.timesteps for record in agent.history):,}",
        f"{seconds:.0f}",
    ]


def main() -> None:
    """Print a row for each criterion, dimension and seed."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--criteria", nargs="+", default=["D", "V"], choices=["D", "V"])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[16, WHOLE])
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--timesteps", type=int, default=12_288)
    args = parser.parse_args()
    header = ["criterion", "d", "seed", "optimum", "uniform", "deep", "loss", "gain", "efficiency", "steps", "seconds"]
    note = "Pairs are of the uniform policy and of the deep agent."
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for dimension in args.dimensions:
            for criterion in args.criteria:
                for seed in args.seeds:
                    rows.append(measure(criterion, seed, dimension, args.iterations, args.timesteps, Path(folder)))
                    print("  ".join(rows[-1]), flush=True)
    show(TextTable("Frank-Wolfe with a deep oracle against newton", header, rows, note, words=1))


if __name__ == "__main__":
    main()
