"""What may stand between an environment and those who act in it: one kind per file, chosen by name.

`spec` is the closed list, `build` makes them. Wrappers of one row are Gymnasium's kind; what works on all rows at once
(normalisation, stacks of frames) is a `Stage`.
"""
