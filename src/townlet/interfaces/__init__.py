"""Interfaces between packages: batched environments, observation layouts, episodes, state.

`vec_env` defines what a batched environment must do; `conformance` checks it for any implementation.
"""
