"""Sections of a report -> a page, a Markdown file or plain text; knows no result, so that every stage can use it."""
