"""The web page: static files that speak to the REST server they come from."""

from checkdam.ui.serving import routes

__all__ = ["routes"]
