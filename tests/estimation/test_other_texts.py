"""Other texts beside a small vocabulary: for whom there are any, and which."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edpbrl_gym.estimation.other_texts import MOST_TOKENS, composed_prompts, other_texts
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.features import PrecomputedEncoder, embed_tokens
from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import Session
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

SMALL = Vocabulary(("who", "how"), (("a cat", "a dog", "an old man"), ("in ink", "in oil")))


def test_a_small_vocabulary_has_two_collections_more(minilm):
    bank, composed = other_texts(SMALL, minilm)()
    assert len(bank) == len(load_vocabulary("images").all_tokens) and len(composed) == 6
    texts = composed_prompts(SMALL)
    assert sorted(texts) == sorted(f"{who}, {how}" for who in SMALL.tokens[0] for how in SMALL.tokens[1])
    np.testing.assert_allclose(composed, minilm.encode(texts), atol=1e-6)
    styles = load_vocabulary("styles")
    assert len(composed_prompts(styles)) == 800 and composed_prompts(styles) == composed_prompts(styles)


def test_nobody_else_has_other_texts(minilm):
    large, pool = load_vocabulary("images"), Vocabulary(("item",), (("a cat", "a dog"),))
    assert sum(large.sizes) > MOST_TOKENS
    assert other_texts(large, minilm) is None and other_texts(pool, minilm) is None
    known = PrecomputedEncoder.from_arrays(SMALL.all_tokens, embed_tokens(SMALL, minilm), name="mine")
    assert other_texts(SMALL, known) is None and other_texts(SMALL, object()) is None


def test_they_can_be_sent_to_another_process(minilm):
    there = pickle.loads(pickle.dumps(other_texts(SMALL, minilm)))
    for one, other in zip(there(), other_texts(SMALL, minilm)(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_two_threads_embed_them_once(minilm):
    calls: list[int] = []

    class Slow:
        name, fingerprint, dimension = minilm.name, "5" * 64, minilm.dimension

        def encode(self, texts: list[str], *, progress: bool = False) -> np.ndarray:
            calls.append(len(texts))
            time.sleep(0.05)  # long enough for the other thread to come, too
            return minilm.encode(texts)

    others = other_texts(SMALL, Slow())
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: others(), range(2))
    assert first is second and len(calls) == 2  # one call a collection


def test_planner_session_and_command_have_the_same_ones(minilm):
    tokens, others = embed_tokens(SMALL, minilm), other_texts(SMALL, minilm)
    planner = make_planner("adaptive", SMALL, minilm, feedback="prompt", num_options=2)
    with Session(planner, vocabulary=SMALL, encoder=minilm, num_options=2, feedback="prompt") as session:
        session.ask()
        session.tell(0)
        answers = session.comparisons.decided
        expected = make_prior("words", tokens, others=others).fit(answers)
        np.testing.assert_allclose(planner.estimate.theta, expected.theta, rtol=1e-6)
        assert len(session.outlook.prior.others) == 2
