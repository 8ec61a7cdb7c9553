"""The live page: a read-only server on this machine that shows a run folder as it grows.

``files`` reads the folder, bounded and without following links; ``records`` keeps what the
appended files say; ``tables`` reads what finished units left instead; ``maps`` has the values of
grids; ``run_view`` puts all of it together; ``server`` answers browsers, with the page in
``assets``.
"""
