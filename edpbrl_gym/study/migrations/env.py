"""Run by Alembic: applies the revisions on the connection, and in the transaction, that ``database`` opened."""

from alembic import context

from edpbrl_gym.study.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
