"""Code that several sinks share."""
