"""Serve a fitted model over HTTP: probabilities, rates and maps as JSON, and a web page. Needs the extra ``serve``.

``pcmcnet serve MODEL`` runs the service; :func:`pcmcnet.serving.app.create_app` returns it for any ASGI server.
"""
