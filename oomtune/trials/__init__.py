"""Running one candidate from outside: the request and reply, the runners, and what an ending means."""
