"""Figures: plain numbers in, an Altair chart or a Plotly figure out. Nothing here knows a model or a page."""
