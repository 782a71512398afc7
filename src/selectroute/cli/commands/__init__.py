"""Commands, a file for each noun of ``selectroute NOUN VERB``."""
