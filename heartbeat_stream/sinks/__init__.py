"""Where rows go. Nothing in here knows Faust, topics or the cooldown."""
