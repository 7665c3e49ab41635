"""What rooms hand each other: batched environments, observation layouts, step records.

The promises are in `vec_env`; `conformance` tests them on any implementation.
"""
