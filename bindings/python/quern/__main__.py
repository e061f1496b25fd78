"""python -m quern: the command line."""
from ._programs import quern

quern()
