"""Alembic's own file. The tests give it other options, to show what happens without these."""

import sqlalchemy
from alembic import context

from with_alembic import Base


def include_name(name, type_, parent_names):
    if type_ == "schema":
        return name not in ("trickle", "pgtrickle", "pgtrickle_changes")
    return True


options = context.config.attributes.get("options", {"include_schemas": True, "include_name": include_name})
with sqlalchemy.create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, **options)
    with context.begin_transaction():
        context.run_migrations()
