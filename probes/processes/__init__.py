"""Processes that `probes` starts: their command lines and answers, and those that are not children of the program."""
