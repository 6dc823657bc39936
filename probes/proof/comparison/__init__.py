"""How two runs differ: series are paired, captures aligned, values measured."""
