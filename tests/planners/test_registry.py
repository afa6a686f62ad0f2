"""The one table of planners: what it says is so, every name makes its planner, and reading it imports none."""

import subprocess
import sys

import numpy as np
import pytest

from edpbrl_gym._compat import constructor_options
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import Ranking, Response
from edpbrl_gym.planners import (
    PLANNERS,
    AdaptivePlanner,
    ComposedFeatures,
    Planner,
    RandomPlanner,
    TokenFeatures,
    make_planner,
    planner_class,
)
from edpbrl_gym.planners.registry import RULES, make_rule, planner_options
from edpbrl_gym.planners.rules import RulePlanner
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.session_planners import WORDS, D, GreedyPlanner, encoder

TOKENS = encoder().encode(WORDS.all_tokens)
START = np.empty((3, 0), dtype=np.int64)
POOL = Vocabulary(("item",), (WORDS.all_tokens,))
OWN = sorted(name for name, row in PLANNERS.items() if row.family != "external")  # a benchmark may have added some


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_every_row_says_what_is_so(name):
    row, cls = PLANNERS[name], planner_class(name)
    assert issubclass(cls, Planner) and row.title and set(row.options) <= set(constructor_options(cls))
    assert cls.is_adaptive(**row.options) == row.adaptive
    assert not set(planner_options(name)) & set(row.options)


def test_every_rule_is_a_planner_under_its_own_name():
    for name in RULES:
        assert make_rule(name).name == name and PLANNERS[name].options["rule"] == name
    assert len({row.title for row in PLANNERS.values()}) == len(PLANNERS)


@pytest.mark.parametrize("name", OWN)
def test_every_name_makes_its_planner(name):
    more = {"rule_options": {"iterations": 10}} if name == "dopewolfe" else {}
    features = ComposedFeatures(WORDS, TOKENS, encoder(), prompts=20)
    planner = make_planner(name, WORDS, features, num_options=3, seed=5, episodes=2, **more)
    assert planner.name == name and planner.num_options == 3 and planner.ask(START).shape == (3,)
    assert planner.asked == 1 and planner.estimate.theta.shape == (D,)


def test_it_is_the_planner_of_the_class():
    features = ComposedFeatures(WORDS, TOKENS, encoder(), prompts=20)
    shared = {"options": features, "num_options": 3, "seed": 5}
    words, ridge = VocabularyPrior(TOKENS), GaussianPrior.isotropic(D, 1.0)
    for made, planner in (
        (make_planner("adaptive-mutual", WORDS, features, num_options=3, seed=5, draws=4),
         AdaptivePlanner(WORDS, prior=words, score="mutual", draws=4, **shared)),
        (make_planner("bald", WORDS, features, num_options=3, seed=5),
         RulePlanner(WORDS, rule="bald", prior=ridge, **shared)),
        (make_planner("qeubo", WORDS, features, prior=words, num_options=3, seed=5),
         RulePlanner(WORDS, rule="qeubo", prior=words, **shared)),
        (make_planner("random", WORDS, features, num_options=3, seed=5, distinct=True),
         RandomPlanner(WORDS.sizes, prior=words, num_options=3, seed=5, distinct=True)),
    ):  # fmt: skip
        for one in (made, planner):
            one.tell(TOKENS[None, :3], [Response.best(1)])
        np.testing.assert_array_equal(made.ask(START), planner.ask(START))
        np.testing.assert_array_equal(made.estimate.theta, planner.estimate.theta)


def test_an_encoder_in_place_of_features_is_of_partial_prompts():
    texts = encoder()
    planner = make_planner("adaptive", WORDS, texts, num_options=3)
    assert isinstance(planner.options, ComposedFeatures) and planner.options.encoder is texts
    np.testing.assert_array_equal(planner.options.token_features, TOKENS)


def test_a_planner_of_ones_own_is_made_from_what_it_takes():
    planner = make_planner(f"{GreedyPlanner.__module__}:GreedyPlanner", WORDS, TokenFeatures(WORDS, TOKENS), seed=3)
    assert isinstance(planner, GreedyPlanner) and planner.seed == 3 and planner.name == "greedy"


def test_wrong_names_and_options_are_named():
    features = TokenFeatures(WORDS, TOKENS)
    with pytest.raises(ValueError, match="planner among adaptive, .*bald.*naive.*, or an import string.*'xyzzy'"):
        make_planner("xyzzy", WORDS, features)
    with pytest.raises(TypeError, match="Planner, got <class 'collections.OrderedDict'>"):
        make_planner("collections:OrderedDict", WORDS, features)
    with pytest.raises(TypeError, match="'bald' has no option 'rule'; its options: draws, .*rule_options"):
        make_planner("bald", WORDS, features, rule="qeubo")
    with pytest.raises(TypeError, match="'adaptive-best' has no option 'mode'"):
        make_planner("adaptive-best", WORDS, features, mode="learn")
    with pytest.raises(ValueError, match="draws >= 0"):
        make_planner("adaptive", WORDS, features, draws=-1)
    own = f"{GreedyPlanner.__module__}:GreedyPlanner"
    with pytest.raises(ValueError, match=f"no model of the answers for the planner '{own}'"):
        make_planner(own, WORDS, features, model=Ranking())


def test_the_tables_of_planners_and_agents_import_neither():
    code = """
import sys
from edpbrl_gym.agents.registry import AGENTS
from edpbrl_gym.planners import PLANNERS
assert "bald" in PLANNERS
names = [name for name in sys.modules if name.startswith("edpbrl_gym.")]
assert len(names) < 20, names
assert not {"scipy", "torch", "edpbrl_gym.planners.adaptive", "edpbrl_gym.planners.rules"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
