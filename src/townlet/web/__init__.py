"""Parts of both web servers (live page and decision service): access control, limits, mailboxes, running uvicorn."""
