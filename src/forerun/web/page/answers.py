"""The operations of the page by the names of its tabs: a request's fields in, HTML out.

Importing this module adds them to the server's operations. They run in the server or in a worker (`answering`), so they
return plain data.
"""

from __future__ import annotations

from forerun.web.operations import Operation, add_operation
from forerun.web.page import compared, decided, explained, predicted, served, stored

_OF_TABS: dict[str, Operation] = {
    "predict": predicted.predict,
    "compare": compared.compare,
    "recommend": decided.recommend,
    "optimise": decided.optimise,
    "budget": decided.budget,
    "serving": served.serving,
    "explain": explained.explain,
    "data": stored.data,
}

for _tab, _operation in _OF_TABS.items():
    add_operation(f"page_{_tab}", _operation)
