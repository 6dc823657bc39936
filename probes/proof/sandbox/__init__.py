"""Confinement by the kernel of a process that reads untrusted files."""
