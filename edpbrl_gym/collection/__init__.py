"""Episodes of K lanes that an oracle answers, and questions drawn for people."""

from edpbrl_gym.collection.collect import (
    DistinctOptions,
    DrawnQuestions,
    answer_again,
    collect,
    draw_questions,
    make_prompt_lanes,
)

__all__ = ["DistinctOptions", "DrawnQuestions", "answer_again", "collect", "draw_questions", "make_prompt_lanes"]
