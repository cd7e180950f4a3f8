"""`make bench`: what quota-worker's functions cost, as ratios measured side by side in one run."""
