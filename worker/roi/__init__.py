"""The ROI report's figures: a month's facts in, a summary out. Pure: no database, no clock, no files."""
