"""Prompts from a trained policy, rankings of several tastes, and their sheet."""

from __future__ import annotations

import zipfile

import gymnasium
import numpy as np
import pytest
from PIL import Image

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.envs.wrappers import LegalActions
from edpbrl_gym.personalize.policy import PromptPolicy, policy_prompts, save_policy
from edpbrl_gym.personalize.rankings import GuidedPicture, Picture, RankedPrompts, rank_prompts, rankings_table
from edpbrl_gym.personalize.search import Prompt, best_prompts
from edpbrl_gym.personalize.sheet import comparison_sheet
from edpbrl_gym.personalize.together import best_prompts_together
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.extras import skip_without
from tests.helpers.small_vocabulary import TOKENS, write_vocabulary

ENCODER = CountingEncoder(dimension=8)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary")
    (folder / "3-lighting.txt").write_text("\n".join(TOKENS["3-lighting"][:5]) + "\n")  # steps differ in size
    return folder


@pytest.fixture(scope="module")
def vocabulary(words):
    return load_vocabulary(words)


@pytest.fixture
def env(words):
    made = gymnasium.make("edpbrl/PromptConstruction-v0", vocabulary=str(words))
    made.unwrapped.model.use_encoder(ENCODER)
    return made


def model(kind, env, seed=0, **options):
    skip_without("rl")
    import sb3_contrib
    import stable_baselines3

    made = getattr(sb3_contrib if kind == "MaskablePPO" else stable_baselines3, kind)
    return made("MlpPolicy", env, seed=seed, device="cpu", **options)


def spread(trained):
    """Make the probabilities of an untrained policy uneven: its last layer starts near zero."""
    import torch

    with torch.no_grad():
        trained.policy.action_net.weight.mul_(300.0)
    return trained


@pytest.mark.parametrize("kind", ["PPO", "MaskablePPO"])
def test_the_probabilities_are_those_of_the_trained_model_over_legal_tokens(kind, env, vocabulary, tmp_path):
    import torch

    """Of a PPO's actions, those that the step hasn't got play what ``LegalActions`` makes of them."""
    trained = spread(model(kind, env))
    policy = PromptPolicy(save_policy(trained, tmp_path / "policy", env), vocabulary)
    observation, info = env.reset(seed=0)
    chosen = []
    for step, action in enumerate((3, 7, 1)):
        tensor, _ = trained.policy.obs_to_tensor(observation[None])
        given = {"action_masks": info["action_mask"][None]} if kind == "MaskablePPO" else {}
        with torch.no_grad():
            probabilities = trained.policy.get_distribution(tensor, **given).distribution.probs[0].double().numpy()
        if kind == "PPO":
            played = np.array([play(env, [*chosen, token])[1]["played_action"] for token in range(len(probabilities))])
            legal = np.array([probabilities[played == token].sum() for token in range(len(probabilities))])
        else:
            legal = probabilities * info["action_mask"]
        found = policy.probabilities(observation[None].astype(np.int64), step)[0]
        assert found == pytest.approx((legal / legal.sum())[: vocabulary.sizes[step]], abs=1e-6)
        assert found.max() > 1.5 / vocabulary.sizes[step]  # uneven enough that a mix-up would show
        chosen.append(action)
        observation, info = play(env, chosen)


def play(env, actions):
    """Observation and info after these actions."""
    lane = LegalActions(env)
    lane.reset()
    for action in actions:
        observation, _, _, _, info = lane.step(action)
    return observation, info


def test_prompts_are_drawn_from_these_probabilities(env, vocabulary, tmp_path):
    policy = PromptPolicy(save_policy(spread(model("PPO", env)), tmp_path / "policy.zip", env), vocabulary)
    tokens = policy.sample(4000, np.random.default_rng(1))
    assert tokens.shape == (4000, 3) and (tokens < vocabulary.sizes).all() and (tokens >= 0).all()
    start = np.full((1, 3), 8, dtype=np.int64)
    expected = policy.probabilities(start, 0)[0]
    counts = np.bincount(tokens[:, 0], minlength=8)
    assert np.abs(counts / 4000 - expected).max() < 4 * np.sqrt(0.25 / 4000)
    first = int(counts.argmax())
    after = tokens[tokens[:, 0] == first]
    second = policy.probabilities(np.array([[first, 8, 8]]), 1)[0]
    assert np.abs(np.bincount(after[:, 1], minlength=8) / len(after) - second).max() < 4 * np.sqrt(0.25 / len(after))
    assert np.array_equal(tokens, policy.sample(4000, np.random.default_rng(1)))
    assert not np.array_equal(tokens, policy.sample(4000, np.random.default_rng(2)))


def test_drawing_leaves_the_global_generators_alone(env, vocabulary, tmp_path):
    import torch

    policy = PromptPolicy(save_policy(model("PPO", env), tmp_path / "policy.zip", env), vocabulary)
    states = np.random.get_state()[1].copy(), torch.get_rng_state()
    policy.sample(5, np.random.default_rng(0))
    assert np.array_equal(states[0], np.random.get_state()[1]) and torch.equal(states[1], torch.get_rng_state())


def test_the_policys_prompts_are_ranked_by_the_taste(env, vocabulary, tmp_path):
    theta = np.random.default_rng(3).normal(size=8)
    policy = PromptPolicy(save_policy(model("PPO", env), tmp_path / "policy.zip", env), vocabulary)
    found = policy_prompts(policy, ENCODER, theta, np.random.default_rng(0), count=6, samples=500, per_base=8)
    drawn = {vocabulary.prompt(row) for row in policy.sample(500, np.random.default_rng(0))}
    scores = {text: float(ENCODER.encode([text])[0].astype(float) @ theta) for text in drawn}
    assert [prompt.text for prompt in found] == sorted(scores, key=scores.get, reverse=True)[:6]
    assert all(prompt.score == pytest.approx(scores[prompt.text]) for prompt in found)
    assert all(vocabulary.prompt(prompt.tokens) == prompt.text for prompt in found)
    one_each = policy_prompts(policy, ENCODER, theta, np.random.default_rng(0), count=6, samples=500)
    assert len({prompt.tokens[0] for prompt in one_each}) == 6
    based = policy_prompts(policy, ENCODER, theta, np.random.default_rng(0), count=4, base=" my dog ")
    assert len({prompt.text for prompt in based}) == 4
    assert all(prompt.text.startswith("my dog, ") and prompt.text.count(", ") == 2 for prompt in based)


def test_policies_that_do_not_fit_are_refused(env, vocabulary, words, tmp_path):
    saved = save_policy(model("MaskablePPO", env), tmp_path / "policy", env)
    assert saved.name == "policy.zip" and PromptPolicy(saved, vocabulary).note["encoder"] == "counting"
    other = load_vocabulary(words).subset(4, 0)
    with pytest.raises(ValueError, match=r"vocabulary on which .*policy.zip was trained \(--vocabulary "):
        PromptPolicy(saved, other)
    plain = tmp_path / "plain.zip"
    unmarked = model("PPO", env)
    unmarked.save(plain)
    assert PromptPolicy(plain, vocabulary).note is None
    with pytest.raises(ValueError, match="3 steps with up to 4 tokens.*got one for 3 steps with up to 8"):
        PromptPolicy(plain, other)
    model("DQN", env, buffer_size=10).save(tmp_path / "dqn.zip")
    with pytest.raises(ValueError, match="PPO or MaskablePPO.*stable_baselines3.dqn"):
        PromptPolicy(tmp_path / "dqn.zip", vocabulary)
    with pytest.raises(FileNotFoundError, match="personalize_policy.py"):
        PromptPolicy(tmp_path / "none.zip", vocabulary)
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(ValueError, match="PPO or MaskablePPO"):
        PromptPolicy(tmp_path / "text.zip", vocabulary)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match="PPO or MaskablePPO"):
        PromptPolicy(tmp_path / "other.zip", vocabulary)


@pytest.fixture
def rankings(vocabulary):
    rng = np.random.default_rng(7)
    tastes = {"ED-PBRL": rng.normal(size=8), "Random": rng.normal(size=8)}
    truth = rng.normal(size=8)

    def beam(theta, base):
        return best_prompts(vocabulary, ENCODER, theta, count=3, base=base)

    searches = [("ED-PBRL", "beam", beam), ("Random", "beam", beam)]
    found = rank_prompts(tastes, searches, ENCODER, bases=["my dog", "a gate"], truth=truth)
    return found, tastes, truth


def test_rank_scores_are_the_finders_and_true_scores_the_true_tastes(rankings):
    found, tastes, truth = rankings
    assert [(one.base, one.name) for one in found] == [
        ("my dog", "ED-PBRL"), ("my dog", "Random"), ("a gate", "ED-PBRL"), ("a gate", "Random")]  # fmt: skip
    for one in found:
        for prompt, true in zip(one.prompts, one.true_scores, strict=True):
            row = ENCODER.encode([prompt.text])[0].astype(float)
            assert prompt.text.startswith(f"{one.base}, ")
            assert prompt.score == pytest.approx(row @ tastes[one.taste]) and true == pytest.approx(row @ truth)
        base = ENCODER.encode([one.base])[0].astype(float)
        assert (one.base_score, one.base_true_score) == pytest.approx((base @ tastes[one.taste], base @ truth))


def test_the_table_has_a_row_for_each_prompt_and_the_columns_that_are_known(rankings):
    found, _, _ = rankings
    names, rows = rankings_table(found)
    assert names == ["taste", "source", "base", "rank", "score", "true_score", "base_score", "base_true_score",
                     "prompt"]  # fmt: skip
    assert [row["rank"] for row in rows] == [1, 2, 3] * 4
    bare = RankedPrompts("mine", "beam", None, (Prompt("a", 1.0, (0,)),), None, None, None)
    assert rankings_table([bare])[0] == ["taste", "source", "rank", "score", "prompt"]
    picture = Picture("image.png", False)
    guided = [GuidedPicture("ED-PBRL", "my dog", 0.1, 0.5, 0.2, 0.3, picture)]
    names, full = rankings_table(found, pictures={found[0].prompts[0].text: picture}, guided=guided)
    assert names[-3:] == ["prompt", "image", "flagged"] and "strength" in names
    assert sum(row["image"] is not None for row in full) == 2 and full[-1]["source"] == "guided"
    assert full[-1]["strength"] == 0.1 and full[-1]["base_true_score"] == found[0].base_true_score


def test_the_sheet_shows_every_picture_in_its_column(rankings, tmp_path):
    """A colour of its own for every picture; flagged ones must not appear."""
    found, _, _ = rankings
    texts = [*dict.fromkeys(["my dog", "a gate", *(p.text for one in found for p in one.prompts)])]
    colours = {text: (10 + 15 * number, 200 - 12 * number, 90) for number, text in enumerate(texts)}
    hidden = found[3].prompts[1].text
    pictures = {}
    for number, (text, colour) in enumerate(colours.items()):
        Image.new("RGB", (16, 16), colour).save(tmp_path / f"{number}.png")
        pictures[text] = Picture(tmp_path / f"{number}.png", text == hidden)
    Image.new("RGB", (16, 16), (250, 0, 250)).save(tmp_path / "guided.png")
    guided = [GuidedPicture("Random", "a gate", 0.1, 0.5, 0.2, None, Picture(tmp_path / "guided.png", False))]
    (path,) = comparison_sheet(found, pictures, tmp_path / "sheet.png", guided=guided, count=2, tile=64, title="Two")
    seen = np.asarray(Image.open(path).convert("RGB"))

    def columns(colour):
        """Columns in which at least one whole picture has this colour."""
        places = np.argwhere((seen == colour).all(axis=2))[:, 1] - 24 - 96
        assert (places % 84 < 64).all()
        return {int(one) for one in np.unique(places // 84) if (places // 84 == one).sum() >= 64 * 64}

    expected = {text: set() for text in colours} | {"my dog": {0}, "a gate": {0}}
    for one in found:
        for prompt in one.prompts[:2]:
            expected[prompt.text].add(1 if one.taste == "ED-PBRL" else 2)
    expected[hidden] = set()
    assert {text: columns(colour) for text, colour in colours.items()} == expected
    assert columns((250, 0, 250)) == {2}


def test_a_prompt_without_picture_is_an_error(rankings, tmp_path):
    with pytest.raises(KeyError):
        comparison_sheet(rankings[0], {}, tmp_path / "sheet.png")
    with pytest.raises(ValueError, match="at least one ranking"):
        comparison_sheet([], {}, tmp_path / "sheet.png")


TASTES = ["a cosy winter evening by candle light", "a snowy street at night, warm windows", "a stormy sea in the dark"]


def test_one_taste_alone_gets_what_a_search_of_its_own_finds(words, minilm):
    vocabulary = load_vocabulary(words)
    for theta in minilm.encode(TASTES):
        alone = best_prompts(vocabulary, minilm, theta, count=5, width=40, shortlist=8)
        assert best_prompts_together(vocabulary, minilm, [theta], count=5, width=40, shortlist=8, tries=8) == [alone]


def test_a_search_for_several_tastes_embeds_fewer_texts_and_finds_as_good_prompts(minilm):
    whole = load_vocabulary().subset(40, 0)
    vocabulary = Vocabulary(whole.names[:3], whole.tokens[:3])
    thetas = minilm.encode(TASTES[:1]).astype(np.float64) + 0.4 * minilm.encode(["rain", "a harbour", "old paper"])
    count, width = 4, 12
    apart, together = Remembering(minilm), Remembering(minilm)
    separate = [best_prompts(vocabulary, apart, theta, count=count, width=width) for theta in thetas]
    joint = best_prompts_together(vocabulary, together, thetas, count=count, width=width)
    found = [np.mean([prompt.score for prompts in search for prompt in prompts]) for search in (joint, separate)]
    assert found[0] > found[1] - 0.015
    for theta, prompts in zip(thetas, joint, strict=True):
        assert len({prompt.tokens[0] for prompt in prompts}) == count  # one for each base
        texts = [vocabulary.prompt(prompt.tokens) for prompt in prompts]
        assert [prompt.text for prompt in prompts] == texts
        np.testing.assert_allclose([prompt.score for prompt in prompts], minilm.encode(texts) @ theta, atol=1e-6)
        scores = [prompt.score for prompt in prompts]
        assert scores == sorted(scores, reverse=True)
    words = set(vocabulary.all_tokens)
    assert len(together.seen - words) < 0.6 * len(apart.seen - words)


def test_a_search_for_several_tastes_says_what_it_expects(vocabulary):
    with pytest.raises(ValueError, match="at least one taste"):
        best_prompts_together(vocabulary, ENCODER, [])
    with pytest.raises(ValueError, match="likes every prompt the same"):
        best_prompts_together(vocabulary, ENCODER, [np.ones(8), np.zeros(8)])
    with pytest.raises(ValueError, match="tries"):
        best_prompts_together(vocabulary, ENCODER, [np.ones(8)], tries=0)


class Remembering:
    """Hands the texts to another encoder and keeps them in a set."""

    def __init__(self, encoder):
        self.encoder, self.seen = encoder, set()
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint

    def encode(self, texts, *, progress=False):
        self.seen.update(texts)
        return self.encoder.encode(texts, progress=progress)
