"""Models without a syntax of their own that write a list of Python calls: ToolACE, Llama 3.2, any that is shown one.

    [tide(port='Brest', days=[1, 2]), moon()]

Nothing marks a call, so it stands alone at the start of the answer. In a fence it is a call only if the fence is all of the answer:
among prose it is an example. Turns are those of whichever tokenizer it is. Source: the parser `pythonic` of vLLM 0.32.
"""

from unbraid.codecs import PythonCalls
from unbraid.formats.generic import BETWEEN, FENCE_END, JSON, OPENING, ROLE_ROW
from unbraid.table import CONTENT, ENDED, ROLE, UNMARKED, calling, unmarked

PYTHON, FENCED_PYTHON = calling(PythonCalls(), then=BETWEEN), calling(PythonCalls(), "fenced")
PYTHON_FENCE = unmarked("```python", "```py", "```tool_code", "```", trial="alone")  # a fence among prose is an example

PYTHONIC = JSON.replace(
    name="pythonic",
    about="ToolACE, Llama 3.2 and any model that is shown a list of Python calls",
    aliases=("generic_pythonic",),
    models=("*ToolACE*",),
    states={
        OPENING: {UNMARKED: PYTHON, PYTHON_FENCE: FENCED_PYTHON},
        CONTENT: {},
        PYTHON: {},
        FENCED_PYTHON: {FENCE_END: BETWEEN},
        BETWEEN: {},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
)
