"""Checks of a plan: what the bindings of a spec cannot be, or what is worth knowing of them."""
