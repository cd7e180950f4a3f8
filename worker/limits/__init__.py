"""Limits in files: reads and checks them, finds what they change, shows what there is; pure."""
