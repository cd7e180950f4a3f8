"""The channels: one file each, one base that owns what a failure means."""
