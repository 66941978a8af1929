"""The web page: static files that speak to the REST server they come from."""
