"""What is right and wrong between the settings and the world, each finding with what to do.

One module per part of the world. They change nothing in it.
"""
