"""The prompt language model: its figures against independent computations, its bytes, its folder."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from edpbrl_gym.language import training
from edpbrl_gym.language.corpus import compose_corpus
from edpbrl_gym.language.fitting import batches_of, rate
from edpbrl_gym.language.folders import TRAINING_FILE, check_replaceable, replacing_model
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.perplexity import framed, measure_perplexity, padded, token_losses
from edpbrl_gym.language.tokenizer import END_OF_TEXT, train_tokenizer
from edpbrl_gym.language.training import PromptLMSettings, train_prompt_lm
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_vocabulary

TINY = PromptLMSettings(
    prompts=200, held_out=20, steps=6, batch_size=8, vocabulary_size=320, width=16, layers=2, heads=2, samples=3
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return load_vocabulary(write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary"))


@pytest.fixture(scope="module")
def trained(vocabulary, tmp_path_factory):
    """A model trained for a second, as it is loaded from its folder."""
    folder = tmp_path_factory.mktemp("lm") / "model"
    report = train_prompt_lm(folder, vocabulary=vocabulary, settings=replace(TINY, steps=150), seed=1)
    return report, AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def plain_nats(model, tokenizer, text: str) -> tuple[float, int]:
    """-log p of one text and the number of its tokens: one forward for each prefix, no batch, no padding, float64."""
    ids = [tokenizer.convert_tokens_to_ids(END_OF_TEXT)]
    wanted = [*tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)), ids[0]]
    nats = 0.0
    for token in wanted:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].double().numpy()
        nats -= logits[token] - logits.max() - math.log(np.exp(logits - logits.max()).sum())
        ids.append(token)
    return nats, len(wanted)


def test_perplexity_agrees_with_the_plain_loop_over_token_probabilities(trained, vocabulary):
    report, model, tokenizer = trained
    held_out = compose_corpus(vocabulary, train=200, held_out=20, seed=1).held_out
    single = [plain_nats(model, tokenizer, text) for text in held_out]
    nats, tokens = (sum(column) for column in zip(*single, strict=True))
    words = sum(len(text.split()) for text in held_out)
    assert report.perplexity_held_out == pytest.approx(math.exp(nats / tokens), rel=1e-5)
    assert report.perplexity_held_out_per_word == pytest.approx(math.exp(nats / words), rel=1e-5)
    for batch_size in (1, 7):
        measured = measure_perplexity(model, tokenizer, held_out, batch_size=batch_size)
        assert measured.nats == pytest.approx(nats, rel=1e-6)
        assert (measured.tokens, measured.words) == (tokens, words)
    with pytest.raises(ValueError, match="at least one text"):
        measure_perplexity(model, tokenizer, [])


def test_padding_changes_neither_loss_nor_gradient(trained):
    _, model, tokenizer = trained
    rows = framed(tokenizer, ["a fox", "a quiet harbour, foggy morning, golden hour light", "neon glow"])

    def gradient(groups):
        model.zero_grad()
        losses = [token_losses(model, *padded(group)) for group in groups]
        sum(losses).backward()
        return sum(loss.item() for loss in losses), torch.cat([p.grad.flatten() for p in model.parameters()])

    together, apart = gradient([rows]), gradient([[row] for row in rows])
    assert together[0] == pytest.approx(apart[0], rel=1e-6)
    torch.testing.assert_close(together[1], apart[1], rtol=1e-4, atol=1e-5)
    model.zero_grad()


def test_it_learns_the_phrases(trained, vocabulary):
    report, model, tokenizer = trained
    few = compose_corpus(vocabulary, train=200, held_out=20, seed=1)
    untrained = training._new_model(tokenizer, TINY, 1)
    before = measure_perplexity(untrained, tokenizer, few.held_out).per_token
    assert before == pytest.approx(len(tokenizer), rel=0.3)  # nothing known: about uniform
    assert report.perplexity_held_out < before / 10
    assert report.perplexity_train < before / 10
    assert report.seconds > 0 and report.cpu_seconds > 0


def test_two_trainings_give_the_same_bytes_whatever_the_global_seed(vocabulary, tmp_path):
    reports = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        torch.manual_seed(hash(name) % 1000)
        np.random.seed(hash(name) % 1000)  # noqa: NPY002
        state = torch.get_rng_state()
        reports.append(train_prompt_lm(tmp_path / name, vocabulary=vocabulary, settings=TINY, seed=seed))
        assert torch.equal(torch.get_rng_state(), state)
    for file in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert (tmp_path / "a" / "model.safetensors").read_bytes() != (tmp_path / "c" / "model.safetensors").read_bytes()
    assert reports[0].samples == reports[1].samples != reports[2].samples
    assert reports[0].perplexity_held_out == reports[1].perplexity_held_out


def test_the_folder_is_an_ordinary_one_and_says_what_made_it(trained, vocabulary):
    report, model, tokenizer = trained
    names = {path.name for path in report.folder.iterdir()}
    ordinary = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert names == {*ordinary, TRAINING_FILE}
    document = json.loads((report.folder / TRAINING_FILE).read_text())
    assert document["vocabulary_fingerprint"] == vocabulary.fingerprint and document["seed"] == 1
    assert document["corpus_fingerprint"] == compose_corpus(vocabulary, train=200, held_out=20, seed=1).fingerprint
    assert document["settings"]["steps"] == 150 and document["report"]["samples"] == list(report.samples)
    assert document["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # without the build
    v, d, positions, layers = len(tokenizer), 16, 128, 2
    block = 2 * 2 * d + (d + 1) * 3 * d + (d + 1) * d + (d + 1) * 4 * d + (4 * d + 1) * d
    assert report.parameters == (v + positions) * d + layers * block + 2 * d
    assert report.vocabulary_size == v == model.config.vocab_size == 320
    assert tokenizer.bos_token == tokenizer.eos_token == END_OF_TEXT and model.config.eos_token_id == 0
    language = load_language_model(report.folder)  # the loading path of the policies
    assert language.start == language.tokenizer.eos_token_id and language.context_length == 128


def test_one_epoch_counts_every_token_once(vocabulary, tmp_path):
    report = train_prompt_lm(tmp_path / "lm", vocabulary=vocabulary, settings=replace(TINY, prompts=61, steps=None))
    corpus = compose_corpus(vocabulary, train=61, held_out=20, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "lm")
    assert report.steps == 8  # of 8 prompts, the last of 5
    assert report.tokens == sum(len(tokenizer.tokenize(text)) + 1 for text in corpus.train)


def test_batches_hold_every_row_once_an_epoch_and_similar_lengths_together():
    lengths = np.random.default_rng(0).integers(2, 40, 1000)
    rows = [[number] * length for number, length in enumerate(lengths)]
    batches = batches_of(rows, 8, torch.Generator().manual_seed(0))
    for _ in range(2):
        epoch = [next(batches) for _ in range(125)]
        assert sorted(row[0] for batch in epoch for row in batch) == list(range(1000))
        spread = np.mean([max(map(len, batch)) - min(map(len, batch)) for batch in epoch])
        assert spread < 5  # random batches: about 30


def test_the_learning_rate_rises_falls_and_ends_near_zero():
    rates = [rate(step, 200) for step in range(200)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == pytest.approx(1.0) and rates[-1] < 1e-3
    top = int(np.argmax(rates))
    assert np.all(np.diff(rates[: top + 1]) > 0) and np.all(np.diff(rates[top + 1 :]) < 0)
    assert [rate(0, 1)] == [1.0]


def test_samples_follow_the_model(trained, monkeypatch):
    """Against the exact distribution of texts of two tokens: all pairs of tokens, those that end early included."""
    _, model, tokenizer = trained
    monkeypatch.setattr(training, "_SAMPLE_TOKENS", 2)
    drawn = Counter(training._draw(model, tokenizer, 4000, torch.Generator().manual_seed(5)))
    size = len(tokenizer)
    with torch.no_grad():
        first = model(torch.tensor([[0]])).logits[0, -1].softmax(-1)
        second = model(torch.stack([torch.zeros(size, dtype=torch.long), torch.arange(size)], dim=1)).logits[:, -1]
    joint = first[:, None] * second.softmax(-1)
    joint[0], joint[0, 0] = 0.0, first[0]  # after the end nothing but the end
    exact: Counter[str] = Counter()
    texts = tokenizer.batch_decode(
        torch.cartesian_prod(torch.arange(size), torch.arange(size)), skip_special_tokens=True
    )
    for text, share in zip(texts, joint.flatten().tolist(), strict=True):
        exact[text] += share
    assert sum(exact.values()) == pytest.approx(1.0, abs=1e-4)
    likely = [(text, share) for text, share in exact.most_common(40) if share > 0.002]
    assert len(likely) >= 5
    for text, share in likely:
        assert abs(drawn[text] / 4000 - share) < 5 * math.sqrt(share / 4000), text


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=60)
def test_the_tokenizer_can_write_every_text(text):
    tokenizer = _TOKENIZER
    assert tokenizer.decode(tokenizer(text)["input_ids"], clean_up_tokenization_spaces=False) == text


_TOKENIZER = train_tokenizer(["a fox at dawn", "an owl at dawn"], 300)


def test_the_tokenizer_has_gpt2s_conventions():
    assert len(_TOKENIZER) < 300 and _TOKENIZER.eos_token_id == 0
    same = train_tokenizer(["an owl at dawn", "a fox at dawn"], 300)
    assert same.get_vocab() == _TOKENIZER.get_vocab()  # the order of the texts doesn't matter
    assert _TOKENIZER.tokenize("a dawn at dawn")[-1] == "\u0120dawn"  # a word after a space begins with it
    with pytest.raises(ValueError, match="vocabulary_size >= 257"):
        train_tokenizer(["a"], 100)


def test_only_a_prompt_model_of_ours_is_written_over(vocabulary, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    check_replaceable(other)  # an empty folder is free
    (other / "thesis.txt").write_text("years of work")
    (other / TRAINING_FILE).write_text('{"kind": "something else"}')
    with pytest.raises(ValueError, match=r"training\.json.*choose another --out"):
        train_prompt_lm(other, vocabulary=vocabulary, settings=TINY)
    assert (other / "thesis.txt").read_text() == "years of work"
    with pytest.raises(ValueError, match="something else there"):
        check_replaceable(other / "thesis.txt")
    with pytest.raises(ValueError, match="can't be written"):
        check_replaceable(other / "thesis.txt" / "below")
    ours = tmp_path / "deep" / "ours"
    train_prompt_lm(ours, vocabulary=vocabulary, settings=TINY, seed=1)
    before = (ours / "model.safetensors").read_bytes()
    train_prompt_lm(ours, vocabulary=vocabulary, settings=TINY, seed=2)
    assert (ours / "model.safetensors").read_bytes() != before
    assert [path.name for path in ours.parent.iterdir()] == ["ours"]


def test_an_interruption_leaves_the_old_folder_or_none(vocabulary, tmp_path, monkeypatch):
    ours = tmp_path / "ours"
    train_prompt_lm(ours, vocabulary=vocabulary, settings=TINY, seed=1)
    before = {path.name: path.read_bytes() for path in ours.iterdir()}

    def interrupted(tokenizer, folder):
        (folder / "tokenizer.json").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_tokenizer", interrupted)
    for folder in (ours, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            train_prompt_lm(folder, vocabulary=vocabulary, settings=TINY, seed=2)
    assert {path.name: path.read_bytes() for path in ours.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]
    with pytest.raises(ValueError, match="something else"), replacing_model(tmp_path / "new") as part:
        (part / "x").write_text("x")
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "mine").write_text("someone was faster")
    assert (tmp_path / "new" / "mine").exists() and len(list(tmp_path.iterdir())) == 2


def test_settings_that_make_no_sense(vocabulary, tmp_path):
    for wrong, said in (
        ({"prompts": 0}, "prompts >= 1"),
        ({"steps": 0}, "steps >= 1"),
        ({"tokens_per_step": 0}, "tokens_per_step >= 1"),
        ({"learning_rate": 0.0}, "learning_rate > 0"),
        ({"heads": 3}, "heads to divide"),
        ({"vocabulary_size": 256}, "vocabulary_size >= 257"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(TINY, **wrong)
    with pytest.raises(ValueError, match="seed >= 0"):
        train_prompt_lm(tmp_path / "lm", vocabulary=vocabulary, settings=TINY, seed=-1)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        train_prompt_lm(tmp_path / "lm", vocabulary=tmp_path / "nowhere", settings=TINY)
    assert not list(tmp_path.iterdir())


def test_long_tokens_widen_the_context(tmp_path):
    folder = tmp_path / "words"
    folder.mkdir()
    for name in ("1", "2"):
        lines = [" ".join(f"{name}{line}w{i}" for i in range(40)) for line in range(12)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    report = train_prompt_lm(tmp_path / "lm", vocabulary=folder, settings=replace(TINY, steps=1, prompts=40))
    config = AutoModelForCausalLM.from_pretrained(report.folder).config
    assert config.n_positions > 128 and config.n_positions % 32 == 0


def test_quick_uses_a_part_of_the_vocabulary(vocabulary, tmp_path):
    report = train_prompt_lm(tmp_path / "lm", vocabulary=vocabulary, settings=replace(TINY, tokens_per_step=5), seed=2)
    document = json.loads((report.folder / TRAINING_FILE).read_text())
    assert document["vocabulary_fingerprint"] == vocabulary.subset(5, 2).fingerprint
