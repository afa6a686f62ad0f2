"""Populations as .safetensors files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._files import replacing
from edpbrl_gym.estimation.items import Crowd, ItemsPrior
from edpbrl_gym.estimation.population.factors import Factors
from edpbrl_gym.estimation.population.gaussian import Gaussian
from edpbrl_gym.estimation.population.model import Population, fingerprint_of
from edpbrl_gym.estimation.prior import GaussianPrior

__all__ = ["PopulationFile", "load_population", "save_items", "save_population"]

_FORMAT = "edpbrl population"
_VERSION = 2  # 1: factors had one mean
_NUMBERS = ("deviation", "people")
_KINDS = ("gaussian", "factors", "items")


class PopulationFile:
    """The file of a population of any kind."""

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Population | ItemsPrior:
        """Read what `Population.save` or `ItemsPrior.save` wrote; raises as `Population.load`."""
        return _read(path)


def save_population(population: Population, path: str | os.PathLike[str]) -> None:
    """Write a population; see :meth:`Population.save`."""
    about = {
        "kind": population.kind,
        "people": population.people,
        "shrinkage": population.shrinkage,
        "features": population.features,
        "provenance": dict(population.provenance),
        "fingerprint": population.fingerprint,
    }
    _write(about, population.tensors(), path)


def save_items(prior: ItemsPrior, path: str | os.PathLike[str]) -> None:
    """Write the prior of a pool of which other people are known; see :meth:`ItemsPrior.save`."""
    crowd = prior.crowd
    if crowd is None:
        raise ValueError("Expected a prior with what other people answered, got one without; fit_crowd makes it")
    apart = (*_NUMBERS, "sums")
    tensors = {name: np.asarray(value, dtype=np.float64) for name, value in vars(crowd).items() if name not in apart}
    tensors |= {f"sums/{name}": values for name, values in crowd.sums.items()}
    tensors["landmarks"] = prior.landmarks
    numbers = {name: getattr(crowd, name) for name in _NUMBERS}
    about = {"kind": "items", **numbers, "options": prior.options, "provenance": dict(prior.provenance)}
    about["fingerprint"] = fingerprint_of("items", crowd.people, crowd.deviation, tensors)
    _write(about, tensors, path)


def load_population(path: str | os.PathLike[str]) -> Population:
    """Read a population; see :meth:`Population.load`."""
    found = _read(path)
    if not isinstance(found, Population):
        raise ValueError(
            f"Expected a population of tastes (kind gaussian or factors), got one of items in {path}, which is about "
            "the items of its pool; fit another kind"
        )
    return found


def _write(about: dict[str, Any], tensors: dict[str, Floats], path: str | os.PathLike[str]) -> None:
    from safetensors.numpy import save

    target = _checked(path)
    # safetensors writes the memory as it lies
    stored = {name: np.array(array, dtype=np.float64, order="C") for name, array in tensors.items()}
    metadata = {"format": _FORMAT, "population": json.dumps({"version": _VERSION, **about})}
    with replacing(target) as temporary:
        temporary.write_bytes(save(stored, metadata=metadata))


def _read(path: str | os.PathLike[str]) -> Population | ItemsPrior:
    from safetensors import safe_open

    source = _checked(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a population at {source}, got no such file; check the path")
    try:
        with safe_open(source, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118  # no iterator
        if metadata.get("format") != _FORMAT:
            raise ValueError("its metadata names no population")
        about = json.loads(metadata["population"])
        if about["version"] > _VERSION:
            raise ValueError(f"its version {about['version']} is later than {_VERSION}; update edpbrl-gym")
        if about["kind"] == "types":
            raise ValueError("types of people are no more; fit the answers again, with kind gaussian or factors")
        if about["kind"] not in _KINDS:
            raise ValueError(f"unknown kind {about['kind']!r}")
        if not all(np.isfinite(array).all() for array in tensors.values()):
            raise ValueError("it has numbers that are not finite")
        return _items(about, tensors) if about["kind"] == "items" else _restored(about, tensors)
    except OSError:
        raise
    except Exception as error:  # safetensors, json and numpy raise many kinds for damaged files
        raise ValueError(f"Expected a population as Population.save writes it, got {source}: {error}") from error


def _items(about: dict[str, Any], tensors: dict[str, Floats]) -> ItemsPrior:
    if fingerprint_of("items", int(about["people"]), float(about["deviation"]), tensors) != about["fingerprint"]:
        raise ValueError("its fingerprint is wrong: the file has changed since it was written")
    prior = ItemsPrior(tensors.pop("landmarks"), **about["options"])
    seen = tensors.pop("seen").astype(np.int64)
    sums = {name.partition("/")[2]: tensors.pop(name) for name in list(tensors) if name.startswith("sums/")}
    crowd = Crowd(**tensors, sums=sums, seen=seen, deviation=float(about["deviation"]), people=int(about["people"]))
    return prior.with_crowd(crowd, about["provenance"])


def _restored(about: dict[str, Any], tensors: dict[str, Floats]) -> Population:
    if about["kind"] == "factors" and about["version"] < 2:
        raise ValueError("it was written by an earlier version of edpbrl-gym; fit it again")
    state = {name.partition("/")[2]: array for name, array in tensors.items() if name.startswith("state/")}
    sums = {name.partition("/")[2]: array for name, array in tensors.items() if name.startswith("moments/")}
    people, shrinkage = int(about["people"]), float(about["shrinkage"])
    if fingerprint_of(about["kind"], people, shrinkage, tensors) != about["fingerprint"]:
        raise ValueError("its fingerprint is wrong: the file has changed since it was written")
    return Population.of(
        Factors.of_tensors(state) if "loadings" in state else Gaussian.of_tensors(state, shrinkage),
        sums,
        base=GaussianPrior(tensors["base/precision"], tensors["base/mean"]),
        kind=about["kind"],
        people=people,
        log_likelihood=tuple(tensors["log_likelihood"].tolist()),
        shrinkage=shrinkage,
        features=str(about["features"]),
        provenance=dict(about["provenance"]),
    )


def _checked(path: str | os.PathLike[str]) -> Path:
    target = Path(path).expanduser()
    if target.suffix != ".safetensors":
        raise ValueError(f"Expected a file name ending in .safetensors, got {target.name!r}")
    return target
