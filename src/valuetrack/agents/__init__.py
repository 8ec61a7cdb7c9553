"""The agents, one file each: options, learner, and what sets it apart, from top to bottom.

===========  ================  ==========================  =================================
agent        sampler           compares                    with
===========  ================  ==========================  =================================
LKTD         lktd              Q(s,a) - discount Q(s',a')  r (or Q(s,a) with y, as DQN does)
SGLD         sgld              the same                    the same
SGHMC        sghmc             the same                    the same
KOVA         Kalman filter     Q(s,a)                      y, double-Q from a target network
KTD          Kalman filter     Q(s,a) - discount max Q     r (or Q(s',a') instead of max Q)
AKQ          Kalman filter     the same                    the same
DQN          Adam, Huber       Q(s,a)                      y, double-Q from a target network
BootDQN      Adam, squares     Q_h(s,a), each head         its own y, on half of the batch
QRDQN        Adam, Huber       quantiles of Q(s,a)         quantiles of y
===========  ================  ==========================  =================================
"""
