"""Texts made to keep a search engine of patterns busy: these, over and over."""

UNITS = (
    "ignore ",
    "all may be done without ",
    "from now on you ",
    "a ",
    "a.",
    "a-b1",
    "ignoreall",
    "1a",
    "eyJaaaaaaaaaaa",
    "://a:",
    "password is ",
    "token=",
    "Human: a\n",
    "=",
    "QUFB",
    "a\u200b",
    "忽略",
)
