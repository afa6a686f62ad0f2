"""An encoder of one's own by its import string, and the check of an encoder's name before anything is loaded."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from edpbrl_gym.experiments.bench.settings import BenchSettings
from edpbrl_gym.experiments.demo_settings import DemoSettings
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
from edpbrl_gym.experiments.settings import SyntheticSettings
from edpbrl_gym.features import TextEncoder, check_encoder_spec, load_encoder
from tests.helpers.encoders import CountingEncoder

OWN = "tests.helpers.encoders:OwnEncoder"
TEXTS = ["a fog", "", "a fog", "dusk"]


@pytest.mark.parametrize(
    "spec",
    ["minilm", "sentence-transformers:a/b", "open_clip:ViT-L-14/openai", "precomputed:x.npz", OWN, "module:Class"],
)
def test_known_forms_pass(spec):
    assert check_encoder_spec(spec) == spec


@pytest.mark.parametrize(
    "spec",
    ["nonsense", "", "minilm:x", "open_clip:", "precomputed", "a.b:", ":Class", "a..b:C", "a b:C", "a:b:c", 3, None],
)
def test_other_forms_are_refused_with_the_known_ones(spec):
    for check in (check_encoder_spec, load_encoder):
        with pytest.raises(ValueError, match=r"'minilm'.*precomputed:.*'package\.module:Class'.*got"):
            check(spec)


def test_the_check_imports_nothing():
    code = (
        "import sys; from edpbrl_gym.features import check_encoder_spec; check_encoder_spec('json.tool:main'); "
        "check_encoder_spec('open_clip:a/b'); print(not {'json.tool', 'open_clip', 'torch'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize("cache", [False, True])
def test_ones_own_encoder(cache, tmp_path):
    encoder = load_encoder(OWN, cache=cache, cache_folder=tmp_path)
    assert isinstance(encoder, TextEncoder)
    assert (encoder.name, encoder.dimension, encoder.fingerprint) == (OWN, 8, "c0ffee00" * 8)
    rows = encoder.encode(TEXTS)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, CountingEncoder().encode(TEXTS), atol=1e-6)
    assert encoder.encode([]).shape == (0, 8)
    again = load_encoder(OWN, cache=cache, cache_folder=tmp_path)
    np.testing.assert_array_equal(again.encode(TEXTS), rows)


def test_a_wrong_encoder_of_ones_own():
    with pytest.raises(ImportError, match="importable module 'nowhere.at_all' for the encoder"):
        load_encoder("nowhere.at_all:Encoder")
    with pytest.raises(ImportError, match="'tests.helpers.encoders' has no 'Missing', asked for by the encoder"):
        load_encoder("tests.helpers.encoders:Missing")
    with pytest.raises(TypeError, match="with dimension, fingerprint and encode, got NamelessEncoder without finger"):
        load_encoder("tests.helpers.encoders:NamelessEncoder")
    with pytest.raises(TypeError, match="without arguments, got: .*folder"):
        load_encoder("tests.helpers.encoders:save_tiny_clip")
    with pytest.raises(TypeError, match="a class that makes an encoder, got"):
        load_encoder("tests.helpers.encoders:TINY_CLIP")
    with pytest.raises(ValueError, match=r"shape \(1, 8\) from tests.helpers.encoders:RaggedEncoder, got \(1, 7\)"):
        load_encoder("tests.helpers.encoders:RaggedEncoder", cache=False).encode(["x"])


@pytest.mark.parametrize(
    "settings",
    [DemoSettings, SyntheticSettings, LLMSettings, ReinforceExperiment, BenchSettings],
)
def test_settings_of_experiments_refuse_a_mistyped_encoder_at_once(settings):
    with pytest.raises(ValueError, match="Expected an encoder of one of the forms .*got 'nonsense'"):
        settings(encoder="nonsense")
    assert settings(encoder=OWN).encoder == OWN


class _ShortName(CountingEncoder):
    def __init__(self):
        super().__init__(fingerprint="v 1")


class _Faulty:
    def __init__(self):
        len(3)


def test_a_fingerprint_that_names_no_folder_and_an_encoder_with_a_bug():
    with pytest.raises(ValueError, match="fingerprint of '.*_ShortName' of 8 to 128 letters and digits"):
        load_encoder("tests.features.test_own:_ShortName", cache=False)
    with pytest.raises(TypeError, match="^object of type 'int' has no len"):
        load_encoder("tests.features.test_own:_Faulty")
