"""How long ``progress`` and ``recommend`` of a session take, and how good what is recommended: docs/sessions.md.

    OMP_NUM_THREADS=1 python -m benchmarks.recommendations times       # a minute, with the tokens' embeddings on disk
    OMP_NUM_THREADS=1 python -m benchmarks.recommendations prompts     # five to ten minutes

Both: MiniLM, the adaptive planner, K = 4, partial prompts, 20 answers of a simulated user.

* "times": CPU seconds and embedded texts of the first and the second call, on the built-in vocabulary and 400 tokens of
  it, and of the first ``progress`` after ``think``. Only the tokens' embeddings are known; the planner's own texts are
  embedded before.
* "prompts": the beam search against the search by a model, for estimates from 20 answers of users who like a sentence
  (without errors, and at scale 20 in turn), on the train split, the held-out split and 20 tokens a step: texts
  embedded, and the true regret of the five and ten best prompts, in the share of the attainable gain (the utility of
  the best prompt that any of the searches found, also for the true taste, minus that of the mean random prompt). The
  constants of the model were chosen on other sentences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import make_parser
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.search import Prompt, best_prompts, random_prompts
from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import Session, run
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

ANSWERS = 20
SENTENCES = (
    "a lighthouse in a snow storm",
    "a bowl of ripe fruit in the style of the old masters",
    "neon signs reflected in puddles",
    "a lazy afternoon in a hammock",
    "a wolf howling at the moon",
    "delicate paper cranes in pastel colours",
)
SEARCHES: dict[str, tuple[Literal["beam", "model"], int]] = {
    "beam, width 20": ("beam", 20),
    "model, width 20": ("model", 20),
    "model, width 40": ("model", 40),
}


class CountingEncoder:
    """Counts the texts that an encoder embeds."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder, self.texts = encoder, 0
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As the encoder."""
        self.texts += len(texts)
        return self.encoder.encode(texts, progress=progress)


def asked(vocabulary: Vocabulary, encoder: TextEncoder, number: int, sentence: str) -> Session:
    """A session with 20 answers."""
    planner = make_planner("adaptive", vocabulary, encoder, seed=number)
    session = Session(planner, vocabulary=vocabulary, encoder=encoder, seed=number)
    mode, scale = ("argmax", 1.0) if number % 2 == 0 else ("sampled", 20.0)
    run(session, SyntheticUser.from_text(sentence, encoder, mode=mode, scale=scale, seed=number), ANSWERS)
    return session


def times() -> None:
    """Print the table of times."""
    whole = load_vocabulary()
    print("| tokens | call | CPU seconds | texts |\n|---|---|---|---|")
    for vocabulary in (whole, whole.subset(67, seed=0)):
        stored = load_encoder("minilm")
        counting = CountingEncoder(load_encoder("minilm", cache=False))
        encoder = MemoEncoder(counting, texts=vocabulary.all_tokens, rows=stored.encode(vocabulary.all_tokens))
        session = asked(vocabulary, encoder, 0, SENTENCES[0])
        calls: dict[str, Callable[[], object]] = {
            "progress": session.progress,
            "recommend": session.recommend,
            "progress again": session.progress,
            "recommend again": session.recommend,
        }
        for name, call in calls.items():
            before, start = counting.texts, time.process_time()
            call()
            spent = time.process_time() - start
            print(f"| {sum(vocabulary.sizes)} | {name} | {spent:.2f} | {counting.texts - before} |", flush=True)
        thinking = asked(vocabulary, encoder, 1, SENTENCES[1])
        for _ in range(len(SENTENCES)):
            thinking.think()
        before, start = counting.texts, time.process_time()
        thinking.progress()
        spent = time.process_time() - start
        print(
            f"| {sum(vocabulary.sizes)} | progress after think | {spent:.2f} | {counting.texts - before} |", flush=True
        )


def prompts() -> None:
    """Print the table of searches."""
    whole = load_vocabulary()
    train, test = whole.split(seed=0)
    stored = load_encoder("minilm")
    print(
        "| vocabulary | search | texts | regret of 5 | of 10 | more than the beam's, of 10 |\n|---|---|---|---|---|---|"
    )
    for name, vocabulary in {"train": train, "held out": test, "20 a step": whole.subset(20, seed=1)}.items():
        rows = stored.encode(vocabulary.all_tokens)
        encoder = MemoEncoder(load_encoder("minilm", cache=False), texts=vocabulary.all_tokens, rows=rows)
        regrets: dict[str, list[NDArray[np.float64]]] = {search: [] for search in SEARCHES}
        texts = dict.fromkeys(SEARCHES, 0)
        for number, sentence in enumerate(SENTENCES):
            truth = encoder.encode([sentence])[0].astype(np.float64)
            estimate = asked(vocabulary, encoder, number, sentence).estimate.theta
            found: dict[str, list[Prompt]] = {}
            for search, (method, width) in SEARCHES.items():
                counting = CountingEncoder(encoder)
                found[search] = best_prompts(vocabulary, counting, estimate, width=width, method=method)
                texts[search] += counting.texts - sum(vocabulary.sizes)
            known = best_prompts(vocabulary, encoder, truth, width=40, method="model")

            values = {search: _utilities([p.text for p in best], encoder, truth) for search, best in found.items()}
            top = max(known[0].score, *(float(value.max()) for value in values.values()))
            random = random_prompts(vocabulary, 100, np.random.default_rng(number))
            mean = float(_utilities(random, encoder, truth).mean())
            for search, value in values.items():
                regrets[search].append((top - np.array([value[:5].mean(), value.mean()])) / (top - mean))
        beam = np.array(regrets[next(iter(SEARCHES))])
        for search in SEARCHES:
            regret = np.array(regrets[search])
            more = (regret - beam)[:, 1]
            error = more.std(ddof=1) / np.sqrt(len(more))
            cells = " | ".join(f"{value:.3f}" for value in regret.mean(axis=0))
            count = texts[search] // len(SENTENCES)
            print(f"| {name} | {search} | {count} | {cells} | {more.mean():+.3f} +- {error:.3f} |", flush=True)


def _utilities(texts: Sequence[str], encoder: TextEncoder, truth: NDArray[np.float64]) -> NDArray[np.float64]:
    return encoder.encode(texts).astype(np.float64) @ truth


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("part", choices=("times", "prompts"))
    {"times": times, "prompts": prompts}[parser.parse_args().part]()


if __name__ == "__main__":
    main()
