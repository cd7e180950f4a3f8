"""The tiny trace that ships with the program, and how it was made."""
