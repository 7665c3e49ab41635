"""Several processes that train one run: the first leads and writes, the others follow."""
