"""The collector: takes what SDKs report over HTTP, and brings it to Kafka, or keeps it on disk.

A report walks one way::

    server --> report --> intake --> judging --> sender --> Kafka
                            |        (store)       |
                            +------> spool <-------+   what Kafka does not take in time
                                       |
                                    draining --> intake
"""
