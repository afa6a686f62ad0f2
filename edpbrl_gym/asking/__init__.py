"""One person asked in a browser on their own machine: questions, the conversation behind them, and its end.

``conversation`` owns the session and knows no web: what is asked, answered and taken back, how sure the session is, and
the end. A person does not wait for an encoder: the first questions are an ``opening`` that needs none, whose answers go
on the disk like all others, and into the session once it is there. What takes longer than a click (the session, how
sure it is, the end) is done by one thread of the conversation. ``app`` shows it on the pages of studies (``study/web``:
the same templates, files, forms and guards). ``ending`` writes what was learnt, for the terminal too.
"""
