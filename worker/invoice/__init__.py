"""The ledger against a provider's invoice: reads an export, compares, explains. Pure."""
