"""What jobs ask of the outside world: Protocols of at most six methods each.

``now`` goes to SQL as ``p_now``: None means the database's clock. Each method of a
database port is one transaction of its own, and idempotent unless it says otherwise.
Errors are those of ``worker.errors``.
"""
