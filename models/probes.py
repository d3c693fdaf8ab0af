"""Texts by which an export of a model is compared with the model itself."""

# Of all lengths, so that nearly all are padded when they are encoded as one batch.
PROBES = (
    "",
    "The user prefers green tea in the morning.",
    "Die Nutzerin trinkt morgens lieber grünen Tee.",
    "用户早上喜欢喝绿茶。",
    "المستخدم يفضل الشاي الأخضر في الصباح",
    "def retry(call, times=3):\n    return next(filter(None, (call() for _ in range(times))), None)",
    "Ticket BM-1042: deploy at 09:30 UTC failed with exit code 137; see https://example.com/a?b=c 🚀. " * 3,
    "We agreed that the ledger is canonical and that the graph can be rebuilt from it at any time. " * 9,
)
