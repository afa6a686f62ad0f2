"""The paper's second experiment: a language model answers as a person who follows a style, ``edpbrl reproduce llm``."""
