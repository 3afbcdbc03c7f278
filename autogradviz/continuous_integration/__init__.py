"""Findings for continuous integration: accepted ones, the exit code, SARIF."""
