"""The ROI report's figures: a month's facts in, a summary out. No database, no clock, no files."""
