"""Is a session as sure as it should be? Predicted against true accuracy, now, later, where it stops: docs/sessions.md.

    python -m benchmarks.stopping                          # about five minutes on an idle core
    python -m benchmarks.stopping --planner adaptive
    python -m benchmarks.stopping --feedback prompt --questions 24 --every 6     # the first answers

Users are drawn from the predictions' prior (the model is right), or like a sentence, without noise or with the noise of
a scale. K = 4, partial prompts of 6 steps, or complete prompts with ``--feedback prompt``. True accuracy is the share
of 1,000 pairs of 200 held-out prompts that the estimate orders as the user's own taste does, not of those for which the
session predicts it. Two tables:

* by user and number of questions: predicted and true accuracy, their mean difference, the mean of the predictions that
  were made half-way, and what Laplace's posterior predicts;
* where the stopping rule says stop: questions asked, predicted and true accuracy there.

The hedge and the power of the predictions' prior were chosen on users of other sentences and seeds. ``--development``
runs users of the sentences on which such choices are made now (`benchmarks.kit.sentences`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import make_parser
from benchmarks.kit.sentences import DEVELOPMENT
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_feedback
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners import AdaptivePlanner, RandomPlanner
from edpbrl_gym.planners.option_features import OptionFeatures, option_features
from edpbrl_gym.session import Session, StoppingRule, answer_of
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

NORMS = (5.0, 20.0, 50.0)
NOISE = ("argmax", 50.0, 20.0, 5.0)
REPORTED = (
    "An image with warm colors depicting bright sunshine",
    "An image with ancient kingdom depicting medieval times",
    "An image with advanced technologies depicting futuristic style",
    "a quiet library at night",
    "soft pastel watercolours of the sea",
    "a crowded street market in the rain",
)


def prior_users(prior: GaussianPrior, count: int, seed: int) -> Iterator[tuple[str, int, SyntheticUser]]:
    """Users for whom the model is right: theta ~ N(0, C) scaled to a root mean square norm."""
    base = Posterior(np.zeros(prior.dimension), prior.precision)
    size = float(np.sqrt(np.trace(np.linalg.inv(prior.precision))))
    for norm in NORMS:
        thetas = base.draws(count, np.random.default_rng([seed, int(norm)])) * norm / size
        for number, theta in enumerate(thetas):
            user = SyntheticUser(theta, mode="sampled", scale=1.0, seed=seed + number)
            yield f"prior, norm {norm:g}", number, user


def sentence_users(
    encoder: TextEncoder, sentences: tuple[str, ...], seed: int
) -> Iterator[tuple[str, int, SyntheticUser]]:
    """Users who like a sentence."""
    for noise in NOISE:
        for number, sentence in enumerate(sentences):
            mode = "argmax" if noise == "argmax" else "sampled"
            scale = 1.0 if noise == "argmax" else float(noise)
            user = SyntheticUser.from_text(sentence, encoder, mode=mode, scale=scale, seed=seed + number)
            yield f"sentence, {noise if noise == 'argmax' else f'scale {noise:g}'}", number, user


def make_planner(
    options: OptionFeatures | None, vocabulary: Vocabulary, prior: VocabularyPrior, seed: int
) -> RandomPlanner | AdaptivePlanner:
    """Random without features of options, else adaptive."""
    if options is None:
        return RandomPlanner(vocabulary.sizes, prior=prior, num_options=4, seed=seed)
    return AdaptivePlanner(vocabulary, options=options, prior=prior, num_options=4, seed=seed)


def follow(
    session: Session, user: SyntheticUser, pairs: NDArray[np.float64], questions: int, every: int
) -> list[dict[str, float]]:
    """Ask and look at the progress every so many questions: predictions, truths, and whether it would stop."""
    rows = []
    truth = np.sign(pairs @ user.theta)
    while session.answered < questions:
        session.tell(answer_of(user, session.ask()))
        if session.answered % every:
            continue
        progress = session.progress([0, session.answered])
        given = np.sign(pairs @ session.estimate.theta)
        later = float(progress.curve[np.searchsorted(progress.further, session.answered)])
        rows.append(
            {
                "questions": session.answered,
                "predicted": progress.accuracy,
                "true": float((given == truth).mean()),
                "laplace": session.posterior.expected_accuracy(pairs),
                "at twice": later,
                "stop": float(progress.should_stop),
            }
        )
    return rows


def report(label: str, runs: list[list[dict[str, float]]]) -> None:
    """One line for each number of questions."""
    for index, first in enumerate(runs[0]):
        asked = int(first["questions"])
        predicted, true = (np.array([run[index][key] for run in runs]) for key in ("predicted", "true"))
        half = [row["at twice"] for run in runs for row in run if 2 * row["questions"] == asked]
        early = f"{np.mean(half):.3f}" if half else "  -  "
        print(
            f"  {label:22s} {asked:4d} questions: predicted {predicted.mean():.3f}, true {true.mean():.3f}, "
            f"difference {np.mean(predicted - true):+.3f} (mean size {np.abs(predicted - true).mean():.3f}), "
            f"predicted half-way {early}, by Laplace {np.mean([run[index]['laplace'] for run in runs]):.3f}"
        )


def report_stops(label: str, runs: list[list[dict[str, float]]]) -> list[float]:
    """Where the rule stops (at the end where it does not); the differences there."""
    stops = [next((row for row in run if row["stop"]), run[-1]) for run in runs]
    differences = [row["predicted"] - row["true"] for row in stops]
    print(
        f"  {label:22s} stops after {np.mean([row['questions'] for row in stops]):5.0f} questions "
        f"({sum(bool(row['stop']) for row in stops)} of {len(stops)} stop): "
        f"predicted {np.mean([row['predicted'] for row in stops]):.3f}, "
        f"true {np.mean([row['true'] for row in stops]):.3f}, difference {np.mean(differences):+.3f} "
        f"(mean size {np.mean(np.abs(differences)):.3f})"
    )
    return differences


def main() -> None:
    """Run all users and print both tables."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--users", type=int, default=6, help="users of each kind, at most 6, or 12 with --development (default: 6)"
    )
    parser.add_argument("--questions", type=int, default=240, help="questions of a session (default: 240)")
    parser.add_argument("--every", type=int, default=60, help="questions between two looks (default: 60)")
    parser.add_argument("--target", type=float, default=0.9, help="of the stopping rule (default: 0.9)")
    parser.add_argument("--development", action="store_true", help="users on which choices may be made")
    parser.add_argument("--planner", choices=("random", "adaptive"), default="random", help="who asks")
    parser.add_argument("--feedback", choices=("truncated", "prompt"), default="truncated", help="what is compared")
    parser.add_argument("--gain", type=float, default=0.01, help="of the stopping rule (default: 0.01)")
    arguments = parser.parse_args()
    train, test = load_vocabulary().split(seed=0)
    encoder = MemoEncoder(load_encoder("minilm"))  # users of one number are asked the same random questions
    tokens = encoder.encode(train.all_tokens)
    prior = VocabularyPrior(tokens)
    feedback = check_feedback(arguments.feedback)
    options = option_features(feedback, train, tokens, encoder) if arguments.planner == "adaptive" else None
    rule = StoppingRule(target=arguments.target, gain=arguments.gain)
    first, sentences = (1000, tuple(DEVELOPMENT["images"].values())) if arguments.development else (0, REPORTED)
    sentences = sentences[: arguments.users]
    count = len(sentences)
    print(f"{sum(train.sizes)} tokens, held-out pairs from {sum(test.sizes)} others, {encoder.name}, {rule}")
    drawn = sample_pairs(test.sizes, prompts=200, pairs=1000, rng=generator(0, "held-out pairs"))
    shown = encoder.encode([test.prompt(row) for row in drawn.tokens]).astype(np.float64)
    pairs = shown[drawn.pairs[:, 0]] - shown[drawn.pairs[:, 1]]
    runs: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
    for label, number, user in [
        *prior_users(VocabularyPrior(tokens, power=1.0).base, count, first),
        *sentence_users(encoder, sentences, first),
    ]:
        session = Session(
            make_planner(options, train, prior, first + number),
            vocabulary=train,
            encoder=encoder,
            held_out=test,
            stopping=rule,
            feedback=feedback,
        )
        runs[label].append(follow(session, user, pairs, arguments.questions, arguments.every))
    print(f"\nPredicted and true accuracy, means over {count} users each")
    for label, found in runs.items():
        report(label, found)
    print("\nWhere the stopping rule stops")
    differences = {label: report_stops(label, found) for label, found in runs.items()}
    for kind in ("prior", "sentence"):
        all_of_kind = [value for label, values in differences.items() if label.startswith(kind) for value in values]
        print(f"  all users of a {kind}: mean difference {np.mean(all_of_kind):+.3f}, {len(all_of_kind)} users")


if __name__ == "__main__":
    main()
