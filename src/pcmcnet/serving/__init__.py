"""A fitted model behind HTTP: probabilities, rates and maps as JSON, and a page. Needs the extra ``serve``.

``pcmcnet serve MODEL`` runs it; :func:`pcmcnet.serving.app.create_app` makes the application for any ASGI server.
"""
