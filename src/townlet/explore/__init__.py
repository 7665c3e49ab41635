"""How agents try what they do not know: ways to choose an action, and rewards for the new.

Environments and networks of agents are not known here.
"""
