"""Is a session as sure as it should be? Predicted against true accuracy, now, later, where it stops: docs/sessions.md.

    python -m benchmarks.stopping                          # about five minutes on an idle core
    python -m benchmarks.stopping --planner adaptive
    python -m benchmarks.stopping --feedback prompt --questions 24 --every 6     # the first answers
    python -m benchmarks.stopping --changes --vocabulary interiors --options 9   # from one answer to the next

Users are drawn from the predictions' prior (the model is right), or like a sentence, without noise or with the noise of
a scale. K = 4, partial prompts of 6 steps, or complete prompts with ``--feedback prompt``. True accuracy is the share
of 1,000 pairs of 200 held-out prompts that the estimate orders as the user's own taste does, not of those for which the
session predicts it. Two tables:

* by user and number of questions: predicted and true accuracy, their mean difference, the mean of the predictions that
  were made half-way, and what Laplace's posterior predicts;
* where the stopping rule says stop: questions asked, predicted and true accuracy there.

With ``--changes`` another one, of adaptive questions about complete prompts, looked at after every answer, for people
who like a sentence and answer without noise or at scale 20, under the rule of `edpbrl ask`:

* after 6, 12 and 24 answers: the share of leads of one of 200 held-out prompts over another inside their 90% intervals
  (without noise a lead has no unit, so leads are divided by their root mean square, those of each draw by its own),
  predicted and true accuracy, and the CPU time of ``progress``;
* the largest changes of "% sure" and of the questions left from one answer to the next, until the rule says stop;
* how often the rule said stop within the range of the questions left that was shown after 6 answers.

The hedge and the power of the predictions' prior were chosen on users of other sentences and seeds. ``--development``
runs users of the sentences on which such choices are made now (`benchmarks.kit.sentences`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import make_parser
from benchmarks.kit.sentences import DEVELOPMENT, FRESH
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
from edpbrl_gym.planners.registry import make_planner as make_planner_by_name
from edpbrl_gym.session import Session, StoppingRule, answer_of
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

NORMS = (5.0, 20.0, 50.0)
LOOKS = (6, 12, 24)  # answers
_MORE = 101  # questions left, where they are more than is predicted
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


def looked_at(
    session: Session, user: SyntheticUser, pairs: NDArray[np.float64], questions: int
) -> list[dict[str, Any]]:
    """Ask, and look at the progress after every answer."""
    rows: list[dict[str, Any]] = []
    truth = pairs @ user.theta * (user.scale if user.mode == "sampled" else 1.0)
    while session.answered < questions:
        session.tell(answer_of(user, session.ask()))
        begun = time.process_time()
        progress = session.progress(())
        row: dict[str, Any] = {
            "sure": progress.accuracy, "left": progress.left, "seconds": time.process_time() - begun,
            "true": float((np.sign(pairs @ session.theta) == np.sign(truth)).mean()),
        }  # fmt: skip
        if session.answered in LOOKS:
            leads, true_leads = session.draws() @ pairs.T, truth
            if user.mode == "argmax":
                leads, true_leads = (one / np.sqrt(np.square(one).mean(-1, keepdims=True)) for one in (leads, truth))
            low, high = np.quantile(leads, (0.05, 0.95), axis=0)
            row["inside"] = float(((low <= true_leads) & (true_leads <= high)).mean())
        rows.append(row)
    return rows


def report_changes(label: str, runs: list[list[dict[str, Any]]]) -> None:
    """The tables of ``--changes`` for one kind of users."""
    for look in LOOKS:
        rows = [run[look - 1] for run in runs if len(run) >= look]
        if rows:
            inside, sure, true = (np.mean([row[key] for row in rows]) for key in ("inside", "sure", "true"))
            print(
                f"  {label:10s} {look:3d} answers: inside {inside:.3f}, predicted {sure:.3f}, true {true:.3f}, "
                f"difference {sure - true:+.3f}; {np.mean([row['seconds'] for row in rows]):.2f} s"
            )
    falls, points, numbers, hits = [], [], [], []
    for run in runs:
        sure = np.array([row["sure"] for row in run])
        left = np.array([_MORE if row["left"].questions is None else row["left"].questions for row in run])
        stop = int(np.argmax(left == 0)) if (left == 0).any() else None
        points.append(100 * np.abs(np.diff(sure)).max())
        falls.append(-100 * np.diff(sure).min())
        numbers.append(np.abs(np.diff(left[: None if stop is None else stop + 1])).max())
        shown = run[LOOKS[0] - 1]["left"]
        low, high = (_MORE if count is None else count for count in (shown.low, shown.high))
        more = len(run) - LOOKS[0]  # seen of the future
        if stop is not None or low > more:
            hits.append(stop is None or low <= stop + 1 - LOOKS[0] <= high)
        elif high < more:
            hits.append(False)
    print(
        f"  {label:10s} medians of the largest change: {np.median(points):.1f} points of sure (largest fall "
        f"{np.median(falls):.1f}), {np.median(numbers):.1f} questions left; {sum(hits)} of {len(hits)} in the range"
    )


def report_all_changes(vocabulary: str, options: int, users: int, questions: int, development: bool) -> None:
    """Run the sessions of ``--changes`` and print the tables."""
    from edpbrl_gym.cli.ask_folder import stopping_rule

    words, test = load_vocabulary(vocabulary).split(seed=0)
    encoder = MemoEncoder(load_encoder("minilm"))
    drawn = sample_pairs(test.sizes, prompts=200, pairs=1500, rng=generator(0, "held-out pairs"))
    shown = encoder.encode([test.prompt(row) for row in drawn.tokens]).astype(np.float64)
    pairs = shown[drawn.pairs[:, 0]] - shown[drawn.pairs[:, 1]]
    sentences = list((DEVELOPMENT if development else FRESH)[vocabulary].values())[:users]
    print(f"{vocabulary}: {sum(words.sizes)} tokens, {options} complete prompts, {len(sentences)} users of each kind")
    for noise in ("argmax", "20"):
        runs = []
        for number, sentence in enumerate(sentences):
            scale, mode = (1.0, "argmax") if noise == "argmax" else (float(noise), "sampled")
            user = SyntheticUser.from_text(sentence, encoder, mode=mode, scale=scale, seed=number)
            planner = make_planner_by_name(
                "adaptive", words, encoder, feedback="prompt", num_options=options, seed=number
            )
            session = Session(
                planner, vocabulary=words, encoder=encoder, held_out=test, stopping=stopping_rule(), feedback="prompt"
            )
            runs.append(looked_at(session, user, pairs, questions))
        report_changes("argmax" if noise == "argmax" else f"scale {noise}", runs)


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
    parser.add_argument("--changes", action="store_true", help="the table of changes from one answer to the next")
    parser.add_argument("--vocabulary", choices=tuple(FRESH), default="images", help="of --changes")
    parser.add_argument("--options", type=int, default=9, help="of a question of --changes (default: 9)")
    arguments = parser.parse_args()
    if arguments.changes:
        questions = min(arguments.questions, 24)
        report_all_changes(arguments.vocabulary, arguments.options, arguments.users, questions, arguments.development)
        return
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
