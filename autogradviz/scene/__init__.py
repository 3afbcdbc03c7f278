"""The view model: what renderers draw, laid out."""
