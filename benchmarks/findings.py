"""Measure the findings of docs/findings.md on the built-in vocabulary.

    python -m benchmarks.findings            # about two minutes on one core, features are cached

Prints one block per finding: what was computed, the sizes and seeds, and the numbers. The sentences of the simulated
users are not those of the paper's experiment.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import make_parser, training_tokens
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.design.criteria import make_criterion, token_difference_matrix
from edpbrl_gym.design.information import exact_information, surrogate_information
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design
from edpbrl_gym.design.solvers.frank_wolfe import frank_wolfe
from edpbrl_gym.design.solvers.newton import newton
from edpbrl_gym.estimation import GaussianPrior, cosine_error, estimate
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.vocabulary import Vocabulary

SENTENCES = (
    "a quiet rainy street in soft grey tones",
    "a cheerful picture book for small children",
    "a vast desert under an enormous sky",
)


def log_det(matrix: np.ndarray) -> float:
    """Log-determinant by numpy, apart from the criteria of the library."""
    return float(np.linalg.slogdet(matrix)[1])


def groups_without_bases(vocabulary: Vocabulary) -> list[np.ndarray]:
    """Row indices of each category but the first."""
    offsets = np.cumsum((0, *vocabulary.sizes))
    return [np.arange(low, high) for low, high in zip(offsets[1:-1], offsets[2:], strict=True)]


def finding_5(mdp: PromptMDP, features: np.ndarray, vocabulary: Vocabulary, iterations: int) -> None:
    """Prior-dominated designs: the paper's V-design at lambda = 100 beside a D-design at lambda = 1."""
    v_matrix = token_difference_matrix(features, groups_without_bases(vocabulary))
    uniform = mdp.row_occupancy(mdp.occupancy(mdp.uniform_policy()))
    print("\nF5  prior-dominated designs, K = 4, T = 60")
    for name, regularization in (("V", 100.0), ("D", 100.0), ("V", 1.0), ("D", 1.0)):
        problem = DesignProblem(
            mdp=mdp,
            features=features,
            num_policies=4,
            episodes=60,
            regularization=regularization,
            criterion=make_criterion(name, v_matrix=v_matrix if name == "V" else None),
        )
        design = frank_wolfe(problem, max_iterations=iterations)
        mass = np.sort(design.mean_rows, axis=1)[:, ::-1]
        support = (mass > 1e-3).sum(axis=1)
        entropy = -np.sum(np.where(mass > 0, mass * np.log(np.where(mass > 0, mass, 1.0)), 0.0), axis=1)
        start, at_uniform = problem.baseline, problem.objective(uniform)
        print(
            f"  {name}, lambda = {regularization:g}: no data {start:.6g}, uniform {at_uniform:.6g}, "
            f"design {design.value:.6g}, bound {design.upper_bound:.6g} "
            f"(relative gap {design.relative_gap:.1e} after {design.iterations} iterations)\n"
            f"    gain over uniform relative to |uniform|: {(design.value - at_uniform) / abs(at_uniform):.2%}; "
            f"tokens above 0.1% per step {support.tolist()}, effective tokens {np.exp(entropy).round(1).tolist()}"
        )
        for warning in design.warnings:
            print(f"    warning: {warning}")


def finding_9(mdp: PromptMDP, features: np.ndarray, seeds: int) -> Design:
    """D-efficiency of uniform queries against the certified bound, T = 60, lambda = 1."""
    dimension = features.shape[1]
    problem = DesignProblem(
        mdp=mdp,
        features=features,
        num_policies=4,
        episodes=60,
        regularization=1.0,
        criterion=make_criterion("D"),
    )
    design = newton(problem)
    bound = design.upper_bound
    prior = np.eye(dimension)
    uniform = mdp.row_occupancy(mdp.occupancy(mdp.uniform_policy()))
    policies = {"uniform": mdp.uniform_policy(), "design": design.policies[0]}
    print(f"\nF9  D-efficiency of state questions against the certified bound, T = 60, lambda = 1, {seeds} seeds")
    print(f"  the solver's own relative gap: {design.relative_gap:.1e}; its efficiency {design.efficiency:.4f}")
    surrogate = surrogate_information(features, uniform, 60) + prior
    efficiency = np.exp((log_det(surrogate) - bound) / dimension)
    print(f"  uniform, surrogate information (balanced tuples at best): {efficiency:.4f}")
    for k in (4, 2):
        rows = np.broadcast_to(uniform, (k, *uniform.shape))
        expected = exact_information(features, rows, 60) + prior
        print(f"  K = {k}: uniform, exact expectation {np.exp((log_det(expected) - bound) / dimension):.4f}", end="")
        for name, policy in policies.items():
            values = []
            for seed in range(seeds):
                rng = np.random.default_rng(1000 + seed)
                drawn = mdp.sample(policy, 60 * k, rng).rows.reshape(60, k, -1)
                options = features[drawn].transpose(0, 2, 1, 3).reshape(-1, k, dimension)
                values.append(np.exp((log_det(fisher_information(options) + prior) - bound) / dimension))
            print(f"; {name}, realised {np.mean(values):.4f} +- {np.std(values, ddof=1) / np.sqrt(seeds):.4f}", end="")
        print()
    return design


def ask_random(
    vocabulary: Vocabulary, encoder: TextEncoder, mdp: PromptMDP, episodes: int, seed: int
) -> tuple[Queries, list[list[str]]]:
    """Uniform questions over partial prompts, K = 4."""
    drawn = mdp.sample(mdp.uniform_policy(), 4 * episodes, np.random.default_rng(seed)).actions.reshape(episodes, 4, -1)
    horizon = drawn.shape[-1]
    texts = [
        [vocabulary.prompt(drawn[episode, lane, : step + 1]) for lane in range(4)]
        for episode in range(episodes)
        for step in range(horizon)
    ]
    flat = encoder.encode([text for question in texts for text in question])
    episode, step = np.divmod(np.arange(episodes * horizon), horizon)
    queries = Queries(features=flat.reshape(len(texts), 4, -1), episode=episode, step=step, texts=texts)
    return queries, texts


def finding_8(vocabulary: Vocabulary, encoder: TextEncoder, mdp: PromptMDP, features: np.ndarray, seeds: int) -> None:
    """Regularisation and priors with plain uniform questions: cosine error of the estimate."""
    dimension = features.shape[1]
    informed = GaussianPrior.from_embeddings(features, power=0.5).precision
    priors = {
        "ridge 100": 100.0 * np.eye(dimension),
        "ridge 1": np.eye(dimension),
        "ridge 0.1": 0.1 * np.eye(dimension),
        "embedding prior x 0.1": 0.1 * informed,
    }
    print(f"\nF8  cosine error with uniform questions, argmax users, {len(SENTENCES)} sentences x {seeds} seeds (mean)")
    budgets = (10, 30, 60)
    errors: dict[str, list[list[float]]] = {name: [] for name in priors}
    for seed in range(seeds):
        queries, _ = ask_random(vocabulary, encoder, mdp, max(budgets), 2000 + seed)
        for sentence in SENTENCES:
            user = SyntheticUser.from_text(sentence, encoder, mode="argmax")
            choices = user.answer(queries).choices
            for name, precision in priors.items():
                row = []
                for budget in budgets:
                    asked = np.flatnonzero(queries.episode < budget)
                    fit = estimate(
                        (queries.features[asked], choices[asked]), prior=GaussianPrior.from_precision(precision)
                    )
                    row.append(cosine_error(fit.theta, user.theta))
                errors[name].append(row)
    for name, rows in errors.items():
        means = np.mean(rows, axis=0)
        print(f"  {name:24s}" + "  ".join(f"T = {t}: {m:.3f}" for t, m in zip(budgets, means, strict=True)))


def main() -> None:
    """Run all blocks."""
    parser = make_parser(__doc__)
    parser.add_argument("--iterations", type=int, default=300, help="Frank-Wolfe iterations (default: 300)")
    parser.add_argument("--seeds", type=int, default=5, help="repeats of each random block (default: 5)")
    arguments = parser.parse_args()
    vocabulary, encoder, tokens = training_tokens()
    features = tokens.astype(np.float64)
    mdp = PromptMDP(vocabulary.sizes)
    print(f"{len(features)} training tokens in {vocabulary.horizon} steps, {encoder.name}, d = {features.shape[1]}")
    finding_5(mdp, features, vocabulary, arguments.iterations)
    finding_8(vocabulary, encoder, mdp, features, arguments.seeds)
    finding_9(mdp, features, arguments.seeds)


if __name__ == "__main__":
    main()
