from edpbrl_gym.oracles.judge.judge import Judge as Judge
from edpbrl_gym.oracles.judge.judge import JudgeOracle as JudgeOracle
from edpbrl_gym.oracles.judge.ledger import Ledger as Ledger
from edpbrl_gym.oracles.judge.questions import JudgeQuestion as JudgeQuestion
from edpbrl_gym.oracles.judge.questions import Usage as Usage
from edpbrl_gym.oracles.judge.questions import Verdict as Verdict
from edpbrl_gym.oracles.judge.settings import JudgeSettings as JudgeSettings

__all__: list[str]
