"""Outcomes of departments, read from CSV and XLSX files: whole, or refused by line. Pure."""
