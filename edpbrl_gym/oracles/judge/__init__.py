"""A language model that answers questions, behind any OpenAI-compatible chat endpoint."""

from edpbrl_gym.oracles.judge.judge import Judge, JudgeOracle
from edpbrl_gym.oracles.judge.ledger import Ledger
from edpbrl_gym.oracles.judge.questions import JudgeQuestion, Usage, Verdict
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Judge", "JudgeOracle", "JudgeQuestion", "JudgeSettings", "Ledger", "Usage", "Verdict"]
