"""Serve a fitted model over HTTP: probabilities, rates and maps as JSON, and a web page.

The package needs the extra ``serve``. ``pcmcnet serve MODEL`` runs the service. :func:`pcmcnet.serving.app.create_app`
returns the application for any ASGI server.
"""
