"""A PostgreSQL ledger that enforces AI token quotas, and the worker that watches it."""

__version__ = "0.1.0"
