"""Conditions that start writing the captures kept in memory."""
