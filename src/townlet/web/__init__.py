"""Shared by both servers: access control, limits, mailboxes and running uvicorn. Not here: the messages."""
