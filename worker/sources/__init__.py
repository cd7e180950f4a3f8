"""Usage sources: whoever may know what a request used whose last chunk never came.

One file per kind, one base that reads what they tell, and the makers. Read-only towards the
source; nothing here writes to the ledger.
"""
