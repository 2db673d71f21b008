"""What the product knows: rules without I/O, without a clock, without Kafka or PostgreSQL.

Everything here takes the time as an argument and returns a decision.
"""
