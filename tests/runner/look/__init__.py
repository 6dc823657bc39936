"""Tests of looks."""
