"""Episodes of K lanes that an oracle answers, and questions drawn for people."""

from edpbrl_gym.collection.collect import DrawnQuestions, answer_again, collect, draw_questions, make_prompt_lanes
from edpbrl_gym.collection.distinct import DistinctOptions

__all__ = ["DistinctOptions", "DrawnQuestions", "answer_again", "collect", "draw_questions", "make_prompt_lanes"]
