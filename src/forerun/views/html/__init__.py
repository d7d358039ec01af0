"""Answers as HTML, for a notebook, a report and a web page: one look, one stylesheet, no rich, torch or pandas.

An answer becomes a fragment, `<div class="forerun answer">…</div>`, in which all text of users is escaped.
`fragments.notebook_cell` puts the stylesheet in front of it; a whole page has `style.page_style()` in its head.
"""
