"""The web page: static files that speak to the REST server they come from."""

from checkdam.server.page.page_files import routes

__all__ = ["routes"]
