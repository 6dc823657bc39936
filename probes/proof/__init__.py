"""Verify, diff and replay: proofs about a run."""
