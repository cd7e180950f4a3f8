"""Adapters to PostgreSQL: the only room that knows asyncpg."""
