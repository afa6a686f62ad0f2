"""Alembic migrations of a study's database; ``edpbrl_gym.study.database`` applies them when it opens one."""
