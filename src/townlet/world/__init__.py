"""YAML worlds, checked and compiled into tables: inheritance, checks of sense, hashes and reports for people.

Nothing here steps a town; the rules that read the tables live in `townlet.sim`.
"""
