"""Is a session as sure as it should be, and steady from one answer to the next? docs/first-answers.md.

    python -m benchmarks.stopping --vocabulary styles --options 9 --users 10     # some ten minutes on an idle core

Adaptive questions about complete prompts, looked at after every answer, for people who like a sentence and answer
without noise or at scale 20, under the rule of `edpbrl ask`:

* after 6, 12 and 24 answers: the share of leads of one of 200 held-out prompts over another inside their 90% intervals
  (without noise a lead has no unit, so leads are divided by their root mean square, those of each draw by its own),
  predicted and true accuracy, and the CPU time of ``progress``;
* the largest changes of "% sure" and of the questions left from one answer to the next, until the rule says stop;
* how often the rule said stop within the range of the questions left that was shown after 6 answers.

``--development`` runs users of the sentences on which choices are made (`benchmarks.kit.sentences`).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import make_parser
from benchmarks.kit.sentences import DEVELOPMENT, FRESH
from edpbrl_gym._seeds import generator
from edpbrl_gym.cli.ask_folder import stopping_rule
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.features import load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners.registry import make_planner
from edpbrl_gym.session import Session, answer_of
from edpbrl_gym.vocabulary import load_vocabulary

LOOKS = (6, 12, 24)  # answers
_MORE = 101  # questions left, where they are more than is predicted


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
    """The lines of one kind of users."""
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


def run(vocabulary: str, options: int, users: int, questions: int, development: bool) -> None:
    """Run the sessions and print the tables."""
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
            planner = make_planner("adaptive", words, encoder, feedback="prompt", num_options=options, seed=number)
            session = Session(
                planner, vocabulary=words, encoder=encoder, held_out=test, stopping=stopping_rule(), feedback="prompt"
            )
            runs.append(looked_at(session, user, pairs, questions))
        report_changes("argmax" if noise == "argmax" else f"scale {noise}", runs)


def main() -> None:
    """Parse and run."""
    parser = make_parser(__doc__)
    parser.add_argument("--users", type=int, default=6, help="users of each kind (default: 6)")
    parser.add_argument("--questions", type=int, default=24, help="questions of a session, at least 6 (default: 24)")
    parser.add_argument("--development", action="store_true", help="users on which choices may be made")
    parser.add_argument("--vocabulary", choices=tuple(FRESH), default="images", help="of the questions")
    parser.add_argument("--options", type=int, default=9, help="of a question (default: 9)")
    given = parser.parse_args()
    run(given.vocabulary, given.options, given.users, given.questions, given.development)


if __name__ == "__main__":
    main()
