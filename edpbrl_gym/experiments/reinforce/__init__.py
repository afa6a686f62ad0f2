"""The paper's vocabulary-free experiment: language models as query policies (``edpbrl reproduce reinforce``)."""
