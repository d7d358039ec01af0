"""The landscape study as a document: figures, pages, docs/LANDSCAPE.md."""
