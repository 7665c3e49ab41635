"""What both servers share: who may ask, messages of which only the latest counts, and how a server runs.

Here: security, mailboxes, running. Not here: what is said; that belongs to `live` and `decide`.
"""
