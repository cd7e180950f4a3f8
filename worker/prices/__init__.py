"""Prices as they come in: from the installed package, or from a file of overrides. Pure.

What they cost is worked out in the database: `sql/functions/quota_price.sql`.
"""
