"""The web study: many people answer, in arms that are compared, and no answer is lost."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "config": ("Arm", "StudyConfig"),
        "config_reading": ("read_config",),
        "human_oracle": ("HumanOracle",),
        "records": (
            "AnswerTimeoutError",
            "ChangedQuestionError",
            "LoopFinishedError",
            "ParticipantLeftError",
            "ParticipantTakenError",
            "QuestionLimitError",
        ),
        "toml_reading": ("Mistakes",),
    },
)
