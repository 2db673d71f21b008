"""Have I seen this message? Three ways to say that two messages are the same, in layers.

How a job uses it, without any I/O in here::

    judge = Judge(rules)                             # once; rules: config/jobs.py, from TOML
    message = judge.read(value)                      # Rejected -> dead letter
    message.scope_key                                # partition by this
    verdict = judge.judge(message, seen, state, now_ms, tally)    # Rejected -> dead letter
    if verdict.is_new:                               # put it out, then
        for identity in verdict.record:              # hold each as seen, at once in memory (a twin
            ...                                      # may follow), durably when the output is
    state = verdict.state                            # from now on that of message.state_key
    verdict.events                                   # gaps, repeats, ids out of order, resets

| module | knows |
| --- | --- |
| ``rules`` | what a configuration can declare |
| ``layers``, ``steps``, ``channel`` | the layers in order, and the verdict |
| ``message_id``, ``epochs``, ``continuity`` | the first layer; ids that skip, repeat, start again |
| ``business_key`` | the second |
| ``fingerprint``, ``canonical``, ``numbers`` | the third |
| ``reader``, ``json_values``, ``times``, ``joining`` | fields of a message, and keys made of them |
| ``seen``, ``scope_state`` | what state must answer, and hold |
| ``in_memory`` | the engine with its state in one process |
"""
