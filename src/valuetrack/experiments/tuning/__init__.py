"""Hyperparameter search with Optuna (extra ``hpo``): what is varied, trials, and their workers."""
