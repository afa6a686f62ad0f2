"""CPU time of a question to a judge, client and server together: docs/judge.md.

    python -m benchmarks.judge_speed

Random prompts of the built-in vocabulary, to `examples/local_judge.py` in this process: under a style, under another
one, for which the server embeds few new texts, and once more, from the ledger.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.common import make_parser
from edpbrl_gym.oracles.judge import Judge, JudgeQuestion, JudgeSettings
from edpbrl_gym.vocabulary import load_vocabulary
from examples.local_judge import LocalJudge


def main() -> None:
    """Print the three costs."""
    parser = make_parser(__doc__)
    parser.add_argument("--questions", type=int, default=300, help="each time")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts and the answers")
    given = parser.parse_args()
    words, rng = load_vocabulary(), np.random.default_rng(given.seed)
    questions = []
    for index in range(given.questions):
        prompts = [[int(rng.integers(size)) for size in words.sizes] for _ in range(4)]
        texts = [words.prompt(prompt[: index % words.horizon + 1]) for prompt in prompts]
        questions.append(JudgeQuestion(texts=texts, identity=str(index)))
    with LocalJudge(seed=given.seed) as server, TemporaryDirectory() as folder:
        server.embed(["load the encoder"])
        settings = JudgeSettings(model="local", style="sunny", base_url=server.base_url, show="texts")
        with Judge(settings, ledger=Path(folder) / "ledger.jsonl") as judge:
            askers = {"new prompts": judge, "known prompts": judge.for_style("noir"), "the ledger": judge}
            for title, asker in askers.items():
                wall, cpu = time.perf_counter(), time.process_time()
                asker.ask(questions)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                cost, rate = 1e3 * cpu / given.questions, given.questions / wall
                print(f"{title}: {cost:.2f} ms of CPU time a question, {rate:.0f} questions a second")


if __name__ == "__main__":
    main()
