"""The HTTP application: routing, requests, errors, security, and the server that runs it."""
