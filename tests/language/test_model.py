"""Loading of language models and tokenizers, the bytes of tokens, and next-token logits with a cache."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.language.decoding import PrefixDecoder
from edpbrl_gym.language.model import SHIPPED_NAME, load_language_model, load_tokenizer
from edpbrl_gym.language.sampling import log_probabilities, sample_prompts
from edpbrl_gym.language.words import WHITESPACE, WordRules
from tests.helpers.tiny_language_model import END, write_tiny_model


@pytest.fixture(scope="module")
def tiny(gpt2):
    return load_language_model(gpt2, device="cpu")


def test_what_is_loaded(tiny, gpt2):
    assert tiny.name == gpt2 and not tiny.model.training and len(tiny.fingerprint) == 64
    assert tiny.start == tiny.tokenizer.eos_token_id == tiny.tokenizer.pad_token_id == tiny.rules.eos
    assert tiny.context_length == 64 and tiny.device.type == "cpu"
    assert next(tiny.model.parameters()).dtype == torch.float32
    assert tiny.start_tokens() == (tiny.start,)
    assert tiny.tokenizer.decode(tiny.start_tokens("a red house")[1:]) == "a red house"
    assert load_language_model(gpt2).fingerprint == tiny.fingerprint


def test_the_fingerprint_knows_weights_and_tokenizer_and_no_place(tiny, gpt2, tmp_path):
    moved = Path(shutil.copytree(gpt2, tmp_path / "moved"))
    assert load_language_model(moved).fingerprint == tiny.fingerprint
    other = load_language_model(write_tiny_model(tmp_path / "other", seed=1))
    assert other.fingerprint != tiny.fingerprint
    settings_file = moved / "tokenizer.json"
    described = json.loads(settings_file.read_text())
    described["normalizer"] = {"type": "Lowercase"}
    settings_file.write_text(json.dumps(described))
    assert load_language_model(moved).fingerprint != tiny.fingerprint


def test_the_default_is_the_one_that_ships_whatever_the_cache_holds(gpt2, tmp_path, monkeypatch):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path))
    shutil.copytree(gpt2, tmp_path / "prompt-lm")
    assert load_language_model(device="cpu").name == SHIPPED_NAME
    assert len(load_tokenizer()) == 4608


@pytest.mark.parametrize("load", [load_language_model, load_tokenizer])
def test_errors_of_loading_say_what_to_do(load, gpt2, tmp_path):
    with pytest.raises(FileNotFoundError, match="got no such folder; check the path"):
        load(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="save_pretrained"):
        load(tmp_path)
    with pytest.raises(ConnectionError, match="nobody/no-such-model.*hub could not be reached"):
        load("nobody/no-such-model")
    for wrong in (3, ""):
        with pytest.raises(TypeError, match="hub id or a folder"):
            load(wrong)
    broken = Path(shutil.copytree(gpt2, tmp_path / "broken"))
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="Expected a tokenizer in"):
        load(broken)


def test_errors_of_the_weights(gpt2, tmp_path):
    with pytest.raises(ValueError, match="device"):
        load_language_model(gpt2, device="nowhere")
    bare = Path(shutil.copytree(gpt2, tmp_path / "bare"))
    (bare / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="weights"):
        load_language_model(bare)
    (bare / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="causal language model"):
        load_language_model(bare)
    mixed = Path(write_tiny_model(tmp_path / "mixed", tokens=("a", "b")))
    shutil.copy(Path(gpt2) / "tokenizer.json", mixed / "tokenizer.json")
    with pytest.raises(ValueError, match="at most the model's 3 tokens, got 320"):
        load_language_model(mixed)


def test_an_encoder_decoder_and_a_tokenizer_without_an_end_are_refused(gpt2, tmp_path):
    from transformers import T5Config, T5ForConditionalGeneration

    place = Path(shutil.copytree(gpt2, tmp_path / "t5"))
    tiny = T5Config(vocab_size=320, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(tiny).save_pretrained(place)
    with pytest.raises(ValueError, match="encoder-decoder"):
        load_language_model(place)
    described = json.loads((place / "tokenizer_config.json").read_text())
    for name in ("eos_token", "bos_token", "unk_token"):
        described.pop(name, None)
    (place / "tokenizer_config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="end-of-sequence"):
        load_tokenizer(place)


def test_other_kinds_of_tokenizers_are_refused(tmp_path):
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordPiece({"a": 0, "##b": 1, END: 2}, unk_token=END))
    for decoder in (decoders.WordPiece(), decoders.Metaspace(), None):
        if decoder is not None:
            backend.decoder = decoder
        else:
            backend = Tokenizer(models.WordLevel({"a": 0, END: 1}, unk_token=END))
        with pytest.raises(ValueError, match="byte-level BPE tokenizer"):
            WordRules.of_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END))


TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=20) | st.text(
    alphabet="ab ,.\n\t\u00e9\u00a0", max_size=20
)


@settings(max_examples=200)
@given(TEXT)
def test_pieces_are_the_bytes_of_the_text(tiny_rules, text):
    tokenizer, rules = tiny_rules
    if END in text:
        return
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert rules.data(tokens) == text.encode()
    assert rules.text(tokens) == text.strip(WHITESPACE)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 319), max_size=12))
def test_any_tokens_decode_as_the_tokenizer_decodes_them(tiny_rules, tokens):
    """Also where they are no valid UTF-8."""
    tokenizer, rules = tiny_rules
    expected = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert rules.data(tokens).decode("utf-8", "replace") == expected


@pytest.fixture(scope="module")
def tiny_rules(gpt2):
    tokenizer = load_tokenizer(gpt2)
    return tokenizer, WordRules.of_tokenizer(tokenizer)


def test_special_and_added_tokens(gpt2):
    tokenizer = load_tokenizer(gpt2)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<mark>"]})
    tokenizer.add_tokens(["new york"])
    rules = WordRules.of_tokenizer(tokenizer)
    mark, city = (tokenizer.convert_tokens_to_ids(name) for name in ("<mark>", "new york"))
    assert not rules.allowed[mark] and not rules.allowed[rules.eos] and not rules.legal_mask(0, False, 3)[mark]
    assert rules.pieces[city] == b"new york" and rules.begins[city] == 2 and rules.size == 322
    assert rules.legal_mask(0, False, 2)[city] and not rules.legal_mask(0, False, 1)[city]
    assert not rules.stop_mask(1, True, 2)[city] and rules.stop_mask(1, False, 2)[city]


def full_logits(tiny, text):
    with torch.no_grad():
        return tiny.model(input_ids=torch.tensor([text])).logits[0, -1]


def test_logits_with_a_cache_are_those_of_the_full_forward(tiny):
    """Texts grow, restart, are cut back and change apart from each other."""
    rng = np.random.default_rng(1000)
    decoder = PrefixDecoder(tiny, 4)
    texts = [[tiny.start] for _ in range(4)]
    for round_number in range(40):
        for text in texts:
            action = rng.integers(6)
            if action == 0:
                del text[1:]
            elif action == 1:
                del text[int(rng.integers(1, len(text) + 1)) :]
            if action > 1 or round_number == 3:
                text.extend(rng.integers(0, 320, size=rng.integers(1, 4)).tolist())
            del text[64:]
        rows = rng.permutation(4)[: rng.integers(1, 5)].tolist()
        found = decoder.logits([texts[row] for row in rows], rows)
        for row, logits in zip(rows, found, strict=True):
            torch.testing.assert_close(logits, full_logits(tiny, texts[row]), atol=1e-5, rtol=0)


def test_only_new_tokens_are_fed(tiny):
    log = []
    handle = tiny.model.register_forward_pre_hook(
        lambda module, args, given: log.append((tuple(given["input_ids"].shape), int(given["attention_mask"].sum()))),
        with_kwargs=True,
    )
    try:
        decoder = PrefixDecoder(tiny, 3)
        texts = [[tiny.start, 5, 6], [tiny.start, 7, 8], [tiny.start, 9, 10]]
        decoder.logits(texts)
        decoder.logits(texts)  # nothing new, nothing fed
        for text in texts:
            text.append(11)
        decoder.logits(texts)
        texts[1] = [tiny.start, 7, 8, 12]  # the last token differs
        decoder.logits(texts)
        decoder.logits([texts[2] + [3]], [2])
    finally:
        handle.remove()
    # shape of what went in, and how many tokens were attended to
    assert log == [((3, 3), 9), ((3, 1), 12), ((1, 1), 4), ((1, 1), 5)]


def test_changed_weights_need_forgetting(gpt2):
    language = load_language_model(gpt2, device="cpu")
    decoder, texts = PrefixDecoder(language, 2), [[language.start, 5, 6], [language.start, 7]]
    before = decoder.logits(texts)
    with torch.no_grad():
        language.model.transformer.wte.weight.mul_(1.5)
    decoder.forget([1])
    after = decoder.logits(texts)
    assert torch.equal(after[0], before[0])  # kept
    torch.testing.assert_close(after[1], full_logits(language, texts[1]), atol=1e-5, rtol=0)
    decoder.forget()
    torch.testing.assert_close(decoder.logits(texts)[0], full_logits(language, texts[0]), atol=1e-5, rtol=0)
    assert not torch.allclose(after[1], before[1], atol=1e-3)


def test_errors_of_the_decoder(tiny):
    decoder = PrefixDecoder(tiny, 2)
    for texts, rows in [([[0]], None), ([[0], [0]], [1, 1]), ([[0]], [2])]:
        with pytest.raises(ValueError, match="one text for each of the rows"):
            decoder.logits(texts, rows)
    with pytest.raises(ValueError, match="start token"):
        decoder.logits([[], [0]])
    with pytest.raises(ValueError, match="64 tokens of context, got a text of 65"):
        decoder.logits([[0] * 65, [0]])


def test_models_with_rotary_positions(gpt2, tmp_path):
    """Nothing here is GPT-2's alone: a Llama with grouped heads and the same tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    place = Path(shutil.copytree(gpt2, tmp_path / "llama"))
    config = LlamaConfig(
        vocab_size=330, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        model.lm_head.weight.data.normal_(0.0, 1.0)
    model.save_pretrained(place)
    language = load_language_model(place, device="cpu")
    assert language.rules.size == 320  # the model has more rows than the tokenizer tokens; they are never drawn
    decoder = PrefixDecoder(language, 2)
    for texts in ([[0, 5, 6, 7], [0, 9]], [[0, 5, 6, 7, 8], [0, 9, 10, 11]], [[0, 5], [0, 9, 10, 11, 12]]):
        for text, logits in zip(texts, decoder.logits(texts), strict=True):
            torch.testing.assert_close(logits, full_logits(language, text), atol=1e-5, rtol=0)
    generator = torch.Generator().manual_seed(0)
    samples = sample_prompts(language, 30, words=3, max_tokens=12, generator=generator, batch_size=8, prefix="a")
    assert int(samples.tokens.max()) < 320 and all(text.startswith("a") for text in samples.texts)
    scores = log_probabilities(language, samples).detach().double()
    torch.testing.assert_close(scores, samples.log_probabilities, atol=2e-5, rtol=0)
