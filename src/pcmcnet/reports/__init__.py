"""Turn the sections of a report into an HTML page, a Markdown file or plain text.

This package does not depend on any particular kind of result, so every other subpackage can use it. A result is turned
into sections once. Each command writes these files, with sections built by these modules:

    command      files                                             modules
    explain      report.html, report.md, explanation.json          plots/report.py
    compare      comparison.html, .md, .json, .png                 plots/comparison.py, evaluation/comparison.py
    reproduce    report.html, report.md, result.json, figure2.*    experiments/
    leaderboard  leaderboard.html, .md, .json, .png                plots/leaderboard.py, evaluation/standings.py
    tune         tuning.md, tuning.json, search.png                tuning/result.py
"""
