"""Sections of a report -> a page, a Markdown file or plain text; knows no result, so that every stage can use it.

A result is put into sections once. What is written by which command, and where its sections come from:

- ``explain``: report.html, report.md, explanation.json; ``plots/report.py``
- ``compare``: comparison.html, .md, .json, .png; ``plots/comparison.py``, ``evaluation/comparison.py``
- ``reproduce``: report.html, report.md, result.json, figure2.png, .pdf, .svg; ``experiments/``
- ``leaderboard``: leaderboard.html, .md, .json, .png; ``plots/leaderboard.py``, ``evaluation/standings.py``
- ``tune``: tuning.md, tuning.json, search.png; ``tuning/result.py``
"""
