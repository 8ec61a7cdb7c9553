r"""Values solved from the replay memory, with standard errors: intervals for the value itself.

An agent's parameters approximately solve the temporal-difference equation

.. math:: \sum_i J_i \delta_i = 0, \qquad \delta_i = r_i + \gamma_i Q(s'_i, a'_i) - Q(s_i, a_i),
          \qquad J_i = \nabla_\theta Q(s_i, a_i).

:mod:`~valuetrack.values.features` says which parameters are meant and writes transitions as rows of
that equation, :mod:`~valuetrack.values.equations` sums over them, and
:mod:`~valuetrack.values.sandwich` solves it and says how far the solution may be off, with
:mod:`~valuetrack.values.misfit` for what the network cannot express.
:mod:`~valuetrack.values.pooling` makes one of those of several seeds.
"""
