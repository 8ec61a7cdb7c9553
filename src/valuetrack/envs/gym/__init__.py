"""What surrounds users' Gymnasium environments: spaces, vectorisation, guards around their code."""
