"""The laboratory: experiments as data, swept on Spark, their results beside what the documents report.

`experiment` loads a file, `grid` makes runs of it, `task` measures one, `sweep` all of them; `summary` keeps what plots
and answers need, `compare` gives the verdicts, `page` shows them. `metrics` holds what can be measured. Spark, Arrow
and Matplotlib are imported only by what needs them.
"""
