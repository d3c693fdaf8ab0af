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

# What all texts share is taken off a vector: everyday memories and questions, in many languages.
CENTRE = (
    "The user prefers green tea in the morning.",
    "Where did we put the keys of the old house?",
    "Deploys run every Tuesday; the release manager signs them off.",
    "I went hiking with my sister last weekend, and we saw a heron!",
    "Die Rechnung wird am Monatsende bezahlt.",
    "Wie heißt der neue Hund von Familie Schneider?",
    "La reunión con Ana se ha movido al jueves.",
    "¿Cuántas personas trabajan en la oficina de Lima?",
    "Elle apprend le violon depuis trois ans.",
    "Il contratto scade alla fine di marzo.",
    "Резервная копия делается каждую ночь.",
    "Кто отвечает за сервер базы данных?",
    "用户早上喜欢喝绿茶。",
    "数据库多久备份一次？",
    "会議は金曜日の午後三時に始まります。",
    "誰が契約書に署名しましたか。",
    "우리 팀은 매주 월요일에 모입니다.",
    "المستخدم يفضل الشاي الأخضر في الصباح",
    "मरीज़ को पेनिसिलिन से एलर्जी है।",
)
