"""What surrounds users' Gymnasium environments.

==================  ===========================================================================
``spaces``          from a Gymnasium space to the arrays that networks take
``encoders``        how each kind of space is encoded
``vectorised``      environments side by side, stepped together, whatever holds them
``make``            from an id, a function or an object to environments side by side
``guards``          calls of users' code, whose errors become one sentence
``indoor_escape``   the indoor escape behind Gymnasium's interface
==================  ===========================================================================
"""
