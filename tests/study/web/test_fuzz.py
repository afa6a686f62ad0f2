"""Random requests to every page: no server error, and the database changes by complete posts only."""

from __future__ import annotations

import pytest

from edpbrl_gym.study.web.guards import Signer
from tests.helpers.studies import CHECKED
from tests.helpers.study_fuzz import fuzz


@pytest.mark.parametrize("format", ["best_worst", "partial"])
def test_random_requests_do_nothing_that_they_may_not(serve, tmp_path, format):
    served = serve(CHECKED.replace("options = 3", f'options = 3\nformat = "{format}"'))
    seen = fuzz(served.config, served.queue.materials, tmp_path, examples=200)
    assert seen["200"] and all(seen[status] > 5 for status in ("303", "403", "404", "405", "answers")), seen


def test_the_fuzzer_finds_a_token_that_is_not_checked(serve, tmp_path, monkeypatch):
    served = serve(CHECKED)
    monkeypatch.setattr(Signer, "is_form_token", lambda self, visitor, token: True)
    with pytest.raises((AssertionError, ExceptionGroup)):  # a group where a second run of the request goes well
        fuzz(served.config, served.queue.materials, tmp_path, examples=600, shrink=False)
