"""Layered layout: ranking, crossing reduction, coordinates and edge routing."""
