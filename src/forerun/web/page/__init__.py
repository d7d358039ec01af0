"""The web page: Gradio's forms around the fragments and charts that notebooks and reports show as well."""
