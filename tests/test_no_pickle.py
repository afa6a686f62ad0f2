"""No file is unpickled: the code that could is named here, and files with pickled objects run nothing."""

from __future__ import annotations

import ast
import io
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.bombs import Bomb

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("edpbrl_gym", "agents", "envs", "examples", "benchmarks")

# who unpickles, and why that is right
ALLOWED = {"edpbrl_gym/workers/cluster.py": "functions and results between a run and the workers of its own cluster"}
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "pickle5", "jsonpickle", "yaml"}
# calls that unpickle whatever their other arguments are
CALLS = {"read_pickle", "to_pickle", "load_from_zip_file", "set_parameters", "load_replay_buffer", "Memory"}
# calls that unpickle unless an argument forbids it: (module, function) -> that argument
GUARDED = {
    ("torch", "load"): ("weights_only", True),
    ("np", "load"): ("allow_pickle", False),
    ("numpy", "load"): ("allow_pickle", False),
}
UNPICKLING_LIBRARIES = {"stable_baselines3", "sb3_contrib", "joblib"}  # their ``load`` unpickles


def sources() -> list[Path]:
    return sorted({path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")})


def unpickling(tree: ast.AST) -> list[str]:
    """Each place of a module that may unpickle, as "line: what"."""
    found, from_libraries = [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            found += [f"{node.lineno}: import of {name}" for name in modules if name.split(".")[0] in MODULES]
            if any(name.split(".")[0] in UNPICKLING_LIBRARIES for name in modules):
                from_libraries |= {(one.asname or one.name).split(".")[0] for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            found.append(f"{node.value.lineno}: trust_remote_code")
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        owner, _, function = name.rpartition(".")
        if function in CALLS or (function == "load" and owner.split(".")[0] in from_libraries):
            found.append(f"{node.lineno}: {name}")
        argument = GUARDED.get((owner, function))
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if argument is not None:
            value = given.get(argument[0])
            if not (isinstance(value, ast.Constant) and value.value is argument[1]):
                found.append(f"{node.lineno}: {name} without {argument[0]}={argument[1]}")
    return found


def test_no_module_unpickles():
    found = {
        str(path.relative_to(ROOT)): places
        for path in sources()
        if (places := unpickling(ast.parse(path.read_text(encoding="utf-8"))))
    }
    others = {path: places for path, places in found.items() if not path.startswith(tuple(ALLOWED))}
    assert not others, f"these may unpickle what a stranger wrote: {others}"
    assert all(any(path.startswith(name) for path in found) for name in ALLOWED), "a name that is not needed any more"


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "def f():\n    from cloudpickle import loads",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "np.load(path, mmap_mode='r')",
        "numpy.load(path, allow_pickle=True)",
        "from joblib import Memory, load\nMemory('x')",
        "import joblib\njoblib.load(path)",
        "from stable_baselines3 import PPO\nPPO.load(path)",
        "import sb3_contrib as more\nmore.MaskablePPO.load(path)",
        "pandas.read_pickle(path)",
        "model.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_the_check_sees_what_it_should(code):
    assert unpickling(ast.parse(code))


# -- files of strangers, read for real ------------------------------------------------------------------------------


def bombed(path: Path, mark: Path, form: str) -> None:
    """Write a pickled object in place of a file of weights."""
    import torch

    if form == "pickle":
        path.write_bytes(pickle.dumps({"weight": Bomb(mark)}, protocol=2))
    else:
        stream = io.BytesIO()
        torch.save({"weight": Bomb(mark)}, stream)
        path.write_bytes(stream.getvalue())


@pytest.fixture(params=["torch", "pickle"])
def form(request):
    return request.param


def test_arrays_of_objects_are_refused(tmp_path):
    from edpbrl_gym.features.precomputed import PrecomputedEncoder

    mark = tmp_path / "mark"
    np.savez(tmp_path / "rows.npz", texts=np.array(["a", "b"]), embeddings=np.array([[Bomb(mark)], [1]], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        PrecomputedEncoder(tmp_path / "rows.npz")
    assert not mark.exists()


def test_a_language_models_weights_run_nothing(form, tmp_path):
    from edpbrl_gym.language import load_language_model
    from tests.helpers.tiny_language_model import write_tiny_model

    folder, mark = tmp_path / "model", tmp_path / "mark"
    write_tiny_model(folder)
    (folder / "model.safetensors").unlink()
    bombed(folder / "pytorch_model.bin", mark, form)
    with pytest.raises(ValueError, match="causal language model"):
        load_language_model(folder)
    assert not mark.exists()


def test_a_sentence_models_weights_run_nothing(form, tmp_path):
    from edpbrl_gym.features import load_encoder
    from tests.helpers.encoders import save_tiny_sentence_model

    folder, mark = save_tiny_sentence_model(tmp_path / "model"), tmp_path / "mark"
    weights = next(folder.rglob("model.safetensors"))
    bombed(weights.with_name("pytorch_model.bin"), mark, form)
    weights.unlink()
    with pytest.raises((ValueError, OSError)):
        load_encoder(f"sentence-transformers:{folder}", cache=False).encode(["a"])
    assert not mark.exists()


@pytest.mark.parametrize("name", ["open_clip_pytorch_model.bin", "open_clip_model.pt", "open_clip_model.pth"])
def test_the_weights_of_a_clip_run_nothing(name, form, tmp_path):
    from edpbrl_gym.features import load_encoder
    from tests.helpers.encoders import save_tiny_clip

    folder, mark = save_tiny_clip(tmp_path / "one"), tmp_path / "mark"
    (folder / "open_clip_model.safetensors").unlink()
    bombed(folder / name, mark, form)
    for spec in (f"open_clip:local-dir:{folder}", f"open_clip:tiny-one/{folder / name}"):
        with pytest.raises((ValueError, OSError)):
            load_encoder(spec, cache=False).encode(["a"])
    assert not mark.exists()


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model", "text_encoder/pytorch_model"])
def test_the_weights_of_a_pipeline_run_nothing(part, form, tmp_path, tiny_pipeline):
    from edpbrl_gym.rendering import RenderSettings
    from edpbrl_gym.rendering.pipelines import load_pipeline

    folder, mark = tmp_path / "model", tmp_path / "mark"
    shutil.copytree(tiny_pipeline, folder)
    for weights in (folder / part).parent.glob("*.safetensors"):
        weights.unlink()
    bombed(folder / f"{part}.bin", mark, form)
    with pytest.raises(ValueError, match="text-to-image pipeline"):
        load_pipeline(RenderSettings(model=str(folder)))
    assert not mark.exists()


@pytest.fixture(scope="module")
def tiny_pipeline(tmp_path_factory):
    from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion

    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("pipeline") / "model")


def test_a_checkpoint_of_training_runs_nothing(form, tmp_path):
    from edpbrl_gym.language.checkpoints import CHECKPOINT, read_checkpoint

    mark = tmp_path / "mark"
    bombed(tmp_path / CHECKPOINT, mark, form)
    with pytest.raises(ValueError, match="Expected a checkpoint"):
        read_checkpoint(tmp_path, policies=None, optimiser=None, credit=None, settings=None, encoder=None)
    assert not mark.exists()
