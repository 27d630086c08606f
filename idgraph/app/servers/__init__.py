"""Real servers on this machine for tests and development, on loopback, in temporary folders.

They are run from the jars of Maven Central with the Java that Spark needs anyway. Here and not among the
tests, because `app` may not import these and its commands start servers for developers.
"""
